package framing

import (
	"bytes"
	stdjson "encoding/json"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/watch"
)

// A jsonList is the list that a body reads.
type jsonList struct {
	*body
	meta   typeMeta
	listed bool             // its items were read
	held   []runtime.Object // items from the first on that needs the kind of a list that does not have it yet
}

// listJSON reads a list and takes its items out. The reader gets the rest.
func (b *body) listJSON() {
	l := jsonList{body: b}
	if !l.read() && (b.tap.Count() > 0 || len(l.held) > 0) {
		b.tap.misfit.Store(true)
	}
}

// read reads the list. It returns false if it does not understand the list.
func (l *jsonList) read() bool {
	w := &l.in
	i := w.space(0)
	if w.at(i) != '{' {
		return false
	}
	l.pass(i + 1)
	for l.err == nil {
		switch i = w.space(0); w.at(i) {
		case ',':
			l.pass(i + 1)
		case '"':
			if !l.field(i) {
				return false
			}
		case '}':
			l.pass(i + 1)
			return l.finish()
		default:
			return false
		}
	}
	return true
}

// field reads the field of the list whose name is at offset i. It returns false if it does not
// understand the field.
func (l *jsonList) field(i int) bool {
	w := &l.in
	colon, ok := w.value(i, maxItem)
	if !ok {
		return false
	}
	name := text(w.data()[i:colon])
	if colon = w.space(colon); w.at(colon) != ':' {
		return false
	}
	v := w.space(colon + 1)
	switch {
	case name == "items" && l.listed:
		return false // the last one counts
	case name != "kind" && strings.EqualFold(name, "kind"), name != "apiVersion" && strings.EqualFold(name, "apiVersion"):
		return false // client-go may take it for the kind
	case name == "items" && w.at(v) == '[':
		if l.meta.kind != "" && l.meta.apiVersion != "" && !l.tap.Type.fits(l.meta, "List", l.gv) {
			return false
		}
		l.listed = true
		l.pass(v + 1)
		if l.items() {
			return true
		}
		// Without its first items, a list that is broken behind them must not become a whole one.
		if l.tap.Count() > 0 || len(l.held) > 0 {
			l.out = append(l.out, "null"...)
		}
		return false
	}
	end, ok := w.value(v, maxItem)
	if !ok {
		return false
	}
	switch raw := w.data()[v:end]; name {
	case "kind":
		ok = l.set(&l.meta.kind, text(raw))
	case "apiVersion":
		ok = l.set(&l.meta.apiVersion, text(raw))
	}
	l.pass(end)
	return ok
}

// set sets the kind or the apiVersion of the list. It returns false if items were read with
// another value before.
func (l *jsonList) set(field *string, to string) bool {
	late := l.listed && *field != "" && *field != to
	*field = to
	return !late
}

// items takes the items up to the closing bracket, which the reader gets. It returns false if it
// does not understand an item.
func (l *jsonList) items() bool {
	w := &l.in
	for first := true; l.err == nil; first = false {
		i := w.space(0)
		switch c := w.at(i); {
		case c == ']':
			w.skip(i)
			l.pass(1)
			return true
		case first:
		case c == ',':
			i = w.space(i + 1)
		default:
			return false
		}
		if w.at(i) != '{' {
			return false
		}
		end, ok := w.value(i, maxItem)
		if !ok || !l.decode(w.data()[i:end]) {
			return false
		}
		w.skip(end)
	}
	return true
}

// decode decodes an item and passes it to the Tap, or holds it until the end of the list. It
// returns false if it cannot decode the item.
func (l *jsonList) decode(raw []byte) bool {
	obj := l.tap.Type.json(raw)
	if obj == nil {
		return false
	}
	switch bare := isBare(obj); {
	case len(l.held) > 0 || bare && (l.meta.kind == "" || l.meta.apiVersion == ""):
		l.held = append(l.held, obj)
	default:
		if bare {
			l.meta.dress(obj)
		}
		l.item(obj)
	}
	return true
}

// finish passes the held items, which had to wait for the kind of the list, to the Tap. It
// returns false if the list is of another kind.
func (l *jsonList) finish() bool {
	if l.listed && !l.tap.Type.fits(l.meta, "List", l.gv) {
		return false
	}
	for _, obj := range l.held {
		if isBare(obj) {
			l.meta.dress(obj)
		}
		if l.item(obj); l.err != nil {
			break
		}
	}
	l.held = nil
	return true
}

// frameJSON reads one event of a watch. If the event has an object, frameJSON takes it; otherwise
// the reader gets the event.
func (b *body) frameJSON() {
	w := &b.in
	w.skipSpace()
	end, ok := 0, false
	if w.at(0) == '{' {
		end, ok = w.value(0, maxEvent)
	}
	switch {
	case len(w.data()) == 0: // the end: client-go makes no event of white space
		b.raw = true
		return
	case !ok || end > maxEvent:
		b.passRest()
		return
	}
	if kind, raw := eventJSON(w.data()[:end]); raw != nil {
		if obj := b.tap.Type.json(raw); obj != nil && b.tap.Type.live(obj, b.gv) {
			b.event(kind, obj, end)
			return
		}
	}
	b.passFrame(end)
	b.out = append(b.out, '\n') // the server's may not be here yet, and a RoundTripper outside may read by line
}

// heads holds the beginning of an event with an object, by type, as an API server writes it.
var heads = func() map[watch.EventType][]byte {
	m := map[watch.EventType][]byte{}
	for _, t := range []watch.EventType{watch.Added, watch.Modified, watch.Deleted} {
		m[t] = []byte(`{"type":"` + string(t) + `","object":`)
	}
	return m
}()

// eventJSON returns the type of an event and its encoded object, or nil if the event has none.
func eventJSON(frame []byte) (watch.EventType, []byte) {
	// The end of a frame was found by counting brackets, so that it may be one of the other kind.
	if inner, ok := bytes.CutSuffix(frame, []byte("}")); ok {
		for t, head := range heads {
			// If more follows the object, its decoder does not accept it.
			if raw, ok := bytes.CutPrefix(inner, head); ok {
				return t, raw
			}
		}
	}
	var e struct {
		Type   watch.EventType    `json:"type"`
		Object stdjson.RawMessage `json:"object"`
		// client-go does not take it for an event if it has one of these.
		Kind       stdjson.RawMessage `json:"kind"`
		APIVersion stdjson.RawMessage `json:"apiVersion"`
	}
	if json.Unmarshal(frame, &e) != nil || heads[e.Type] == nil || e.Kind != nil || e.APIVersion != nil {
		return "", nil
	}
	return e.Type, e.Object
}
