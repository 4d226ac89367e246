package model_test

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/customcacheinformer/informer"
)

// What TestModel knows of what a watcher is to be told: the changes of each object, in the
// order in which the store took them, each once, from the state at the join. Nothing in
// this file knows how an informer does that.

// presence is what there is under a key at some time: a version of an object, or nothing.
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

// ledger is what a store has taken of each key since an informer began: first what it
// held then. An object that was created again is nothing in between.
type ledger map[string][]presence

func (l ledger) take(key string, p presence) {
	if l[key] == nil {
		l[key] = []presence{nothing}
	}
	last := l[key][len(l[key])-1]
	if last == p {
		return // the same was written again, because it had failed
	}
	if p != nothing && last != nothing && last.uid != p.uid {
		l[key] = append(l[key], nothing)
	}
	l[key] = append(l[key], p)
}

// narrowed is what the ledger is to a watcher that sees only some versions.
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

// belief is how far a watcher has been told what the ledger has of one key.
type belief struct {
	at      int      // the entry that was told last, or that there was before the first
	from    int      // what at was at first
	knows   presence // what was told last; at first nothing
	failing *event   // an attempt that failed and is to come again
	tried   presence // what it, or one before it, has told
}

// newBelief returns the belief of a watcher. joined is the number of entries that the ledger
// had when the watcher joined.
func newBelief(entries []presence, joined int) *belief {
	at := max(joined, 1) - 1
	if at < len(entries) && entries[at] != nothing {
		at-- // it is still to be told
	}
	return &belief{at: at, from: at}
}

// follow returns the entry that e tells, and how many it leaves out: of the life of that
// object, and before it.
func (b *belief) follow(entries []presence, e *event) (to, merged, hidden int, err error) {
	known, at := b.knows, b.at
	if b.failing != nil && known == nothing && e.Type == informer.EventDeleted {
		known = b.tried // an add that has failed counts as seen
		at = find(entries, at, known)
	}
	now := presenceOf(e.New)
	switch {
	case e.Type == informer.EventAdded && known != nothing:
		return 0, 0, 0, fmt.Errorf("it was there already, as %v", known)
	case e.Type != informer.EventAdded && known == nothing:
		return 0, 0, 0, fmt.Errorf("it was not there")
	case e.Type != informer.EventAdded && known.uid != e.Old.UID:
		return 0, 0, 0, fmt.Errorf("Old is %v, and what was told before %v", presenceOf(e.Old), known)
	case e.Type != informer.EventAdded && b.failing == nil && presenceOf(e.Old) != known:
		return 0, 0, 0, fmt.Errorf("Old is %v, and what was told before %v", presenceOf(e.Old), known)
	case e.Origin == informer.OriginResync && now == known:
		return b.at, 0, 0, nil
	}
	if to = find(entries, at, now); to < 0 {
		return 0, 0, 0, fmt.Errorf("the store has not taken %v after %v: %v", now, known, entries)
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

// supersedes returns an error if e cannot be what comes after an attempt that failed: the
// same again, or what came of it and of newer changes.
func supersedes(e, failed *event) error {
	ok := false
	switch failed.Type {
	case informer.EventAdded:
		ok = e.Type == informer.EventDeleted || e.Type == informer.EventAdded && notBefore(e, failed)
	case informer.EventUpdated:
		ok = e.Type == informer.EventDeleted || e.Type == informer.EventUpdated && notBefore(e, failed)
	case informer.EventDeleted:
		ok = e.Type == informer.EventDeleted && e.Old.UID == failed.Old.UID
	}
	if !ok {
		return fmt.Errorf("%s %v has failed and was to come again", failed.Type, presenceOf(failed.Object()))
	}
	return nil
}

func notBefore(e, failed *event) bool {
	return presenceOf(e.New).version >= presenceOf(failed.New).version
}
