package model_test

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/customcacheinformer/informer"
)

// This file is the reference for TestModel: which events a watcher must get. These are the
// changes of each object since the watcher joined, each once, in the order in which the store
// took them. Nothing in this file depends on how an informer works.

// presence is the state of a key at some time: a version of an object, or nothing.
type presence struct {
	uid     types.UID
	version uint64
}

var nothing presence

func presenceOf(obj configMap) presence {
	if obj == nil {
		return nothing
	}
	return presence{obj.UID, versionNumber("0" + obj.ResourceVersion)}
}

func (p presence) String() string {
	if p == nothing {
		return "nothing"
	}
	return fmt.Sprintf("uid %s version %d", idOf(p.uid), p.version)
}

// ledger lists, by key, the states that a store has taken since an informer began. The first
// entry is the state at that time. If an object was deleted and created again, the entry
// nothing is between the two objects.
type ledger map[string][]presence

func (l ledger) take(key string, p presence) {
	if l[key] == nil {
		l[key] = []presence{nothing}
	}
	last := l[key][len(l[key])-1]
	if last == p {
		return // a failed write was repeated
	}
	if p != nothing && last != nothing && last.uid != p.uid {
		l[key] = append(l[key], nothing)
	}
	l[key] = append(l[key], p)
}

// narrowed returns the ledger as a watcher sees it that gets only some versions.
func narrowed(entries []presence, sees func(presence) bool) []presence {
	var seen []presence
	for i, p := range entries {
		if !sees(p) {
			p = nothing
		}
		if p != nothing || i == 0 || seen[len(seen)-1] != nothing {
			seen = append(seen, p)
		}
	}
	return seen
}

// belief is how much of one key's ledger a watcher knows from its events.
type belief struct {
	at      int      // the entry of the last event; before the first event, the entry to start after
	from    int      // the first value of at
	knows   presence // the state after the last event; nothing before the first
	failing *event   // an event that failed and will be delivered again
	tried   presence // the New of the failing event, or of a failed event before it
}

// newBelief returns the belief of a watcher before its first event. joined is the number of
// entries that the ledger had when the watcher joined.
func newBelief(entries []presence, joined int) *belief {
	at := max(joined, 1) - 1
	if at < len(entries) && entries[at] != nothing {
		at-- // the watcher still has to get the current object
	}
	return &belief{at: at, from: at}
}

// follow returns the entry that e leads to. It also returns how many entries e skips: merged
// counts those of the same object, hidden those before that object.
func (b *belief) follow(entries []presence, e *event) (to, merged, hidden int, err error) {
	known, at := b.knows, b.at
	if b.failing != nil && known == nothing && e.Type == informer.EventDeleted {
		known = b.tried // a failed add counts as seen
		at = find(entries, at, known)
	}
	now := presenceOf(e.New)
	switch {
	case e.Type == informer.EventAdded && known != nothing:
		return 0, 0, 0, fmt.Errorf("the watcher already knows the object, as %v", known)
	case e.Type != informer.EventAdded && known == nothing:
		return 0, 0, 0, fmt.Errorf("the watcher does not know the object")
	case e.Type != informer.EventAdded && known.uid != e.Old.UID:
		return 0, 0, 0, fmt.Errorf("Old is %v, but the last event left %v", presenceOf(e.Old), known)
	case e.Type != informer.EventAdded && b.failing == nil && presenceOf(e.Old) != known:
		return 0, 0, 0, fmt.Errorf("Old is %v, but the last event left %v", presenceOf(e.Old), known)
	case e.Origin == informer.OriginResync && now == known:
		return b.at, 0, 0, nil
	}
	if to = find(entries, at, now); to < 0 {
		return 0, 0, 0, fmt.Errorf("the store never changed to %v after %v: %v", now, known, entries)
	}
	first := to
	for e.Type == informer.EventAdded && first > at+1 && entries[first-1].uid == now.uid {
		first--
	}
	if e.Type != informer.EventAdded {
		first = at + 1
	}
	return to, to - first, first - at - 1, nil
}

// find returns the first entry after at that is p, or -1.
func find(entries []presence, at int, p presence) int {
	i := slices.Index(entries[min(at+1, len(entries)):], p)
	if i < 0 {
		return -1
	}
	return at + 1 + i
}

// supersedes returns an error if e cannot follow an event that failed. e must be the same
// event again, or the result of merging it with newer changes.
func supersedes(e, failed *event) error {
	ok := e.Type == informer.EventDeleted
	if failed.Type == informer.EventDeleted {
		ok = ok && e.Old.UID == failed.Old.UID
	} else if e.Type == failed.Type {
		ok = presenceOf(e.New).version >= presenceOf(failed.New).version
	}
	if !ok {
		return fmt.Errorf("%s %v has failed and must be delivered again before other events", failed.Type, presenceOf(failed.Object()))
	}
	return nil
}
