package debug

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/customcacheinformer/informer"
)

// memberView is the state of a member of a kind that this package does not know.
type memberView struct {
	Name      string         `json:"name"` // the key in the map of health
	State     string         `json:"state"`
	Attention bool           `json:"attention"`
	Error     string         `json:"error,omitempty"`  // why it is not ready, or not live
	Health    map[string]any `json:"health,omitempty"` // as its MemberHealth encodes itself
	Button    string         `json:"-"`                // the text of its button, "" for none
}

// actor is a MemberHealth with a button.
type actor interface {
	Action() string
	Act(ctx context.Context) error
}

// newMemberView returns the view of a member. A person should look at it if it is not live, or has run and is not ready.
func newMemberView(name string, is informer.MemberHealth) memberView {
	v := memberView{Name: name, State: "ready"}
	if text, err := json.Marshal(is); err == nil {
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.UseNumber() // large numbers stay as they are
		_ = decoder.Decode(&v.Health)
	}
	if a, ok := is.(actor); ok {
		v.Button = a.Action()
	}
	ready, live := is.Ready(), is.Live()
	switch {
	case live != nil:
		v.State, v.Attention, v.Error = "not live", true, live.Error()
	case !is.HasRun():
		v.State = "not started"
	case ready != nil:
		v.State, v.Attention, v.Error = "not ready", true, ready.Error()
	}
	return v
}

func act(w http.ResponseWriter, r *http.Request, name string, is informer.MemberHealth) {
	a, ok := is.(actor)
	if !ok || a.Action() == "" {
		http.Error(w, fmt.Sprintf("informer/debug: there is no member %q with a button", name), http.StatusNotFound)
		return
	}
	if err := a.Act(r.Context()); err != nil {
		http.Error(w, fmt.Sprintf("informer/debug: %s: %v", name, err), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Location", "?") // relative to the address in the browser, which StripPrefix hides from the handler
	w.WriteHeader(http.StatusSeeOther)
}
