package shards_test

import (
	"fmt"
	"net/http"
	"path"
	"slices"
	"sync"

	fronts "github.com/customcacheinformer/informer/e2e/internal/front"
	"github.com/customcacheinformer/informer/e2e/internal/stage"
)

// front is a proxy before the API servers. It keeps its address, and its certificate, when they restart.
type front struct {
	*fronts.Gateway

	mu       sync.Mutex     // protects the rest
	selected map[string]int // the requests with a shard selector, by their kind
}

func newFront() *front {
	f := &front{selected: map[string]int{}}
	f.Gateway = fronts.NewGateway("", func(pass http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			f.note(r)
			pass.ServeHTTP(w, r)
		})
	})
	return f
}

func (f *front) note(r *http.Request) {
	query := r.URL.Query()
	if !query.Has("shardSelector") {
		return
	}
	kind := "LIST"
	switch {
	case r.Method != http.MethodGet || !slices.Contains([]string{"widgets", "gadgets"}, path.Base(r.URL.Path)):
		kind = fmt.Sprint(r.Method, " ", r.URL.Path)
	case query.Get("watch") != "":
		kind = "WATCH"
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.selected[kind]++
}

// judge fails the test if a selector was sent with another request than LIST or WATCH, and if none was
// sent although there should have been.
func (f *front) judge(t stage.T, wanted bool) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	t.Logf("requests with a shard selector: %v", f.selected)
	for kind := range f.selected {
		if kind != "LIST" && kind != "WATCH" {
			t.Errorf("a shard selector was sent with %s", kind)
		}
	}
	if wanted != (f.selected["WATCH"] > 0) {
		t.Errorf("divided: %v, but %d watches had a shard selector", wanted, f.selected["WATCH"])
	}
}
