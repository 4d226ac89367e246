package model_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"

	"github.com/customcacheinformer/informer"
)

// The stores of TestHistories, and their faults.

// faultKind is the effect of a fault.
type faultKind string

const (
	faultCrash  faultKind = "the process crashes"
	faultRefuse faultKind = "it is refused"
	faultFail   faultKind = "it fails"
)

// storeFault is a fault of some of the next store operations with the name op.
type storeFault struct {
	op           string
	kind         faultKind
	after        bool // the operation takes effect first
	first, times int64
	last         int64 // if not 0, the process crashes at this Apply, counted from the first fault
}

func (f *storeFault) String() string {
	when := "before"
	if f.after {
		when = "after"
	}
	text := fmt.Sprintf("at %s %d from now, and %d times: %s %s the effect", f.op, f.first, f.times, f.kind, when)
	if f.last > 0 {
		text += fmt.Sprintf(", and the process crashes at Apply %d after that", f.last)
	}
	return text
}

// arm applies the fault to the store of l, instead of any earlier fault.
func (f *storeFault) arm(l *life) {
	var calls atomic.Int64
	fail := func(op, _ string) error {
		if op != f.op {
			return nil
		}
		if n := calls.Add(1); n < f.first || n >= f.first+f.times {
			return nil
		}
		switch f.kind {
		case faultCrash:
			l.crash()
		case faultRefuse:
			if l.doubtful.Load() {
				return nil // a refusal would say that the write did not take effect
			}
			l.refused.Store(true)
			return fmt.Errorf("%w: %w", errInjected, informer.ErrPermanent)
		}
		return errInjected
	}
	if f.after {
		l.store.FailAfter(fail)
		return
	}
	l.store.Fail(fail)
	if f.last > 0 {
		var applied atomic.Int64
		l.store.FailAfter(func(op, _ string) error {
			if op == "apply" && calls.Load() >= f.first && applied.Add(1) == f.last {
				l.crash()
			}
			return nil
		})
	}
}

// modest is a store that returns small pages, and that may ignore the end of a ctx once it has
// begun to write.
type modest struct {
	*durable
	page int
	deaf bool
	life *life
}

func (s modest) Scan(ctx context.Context, after string, limit int) ([]informer.Entry, error) {
	return s.durable.Scan(ctx, after, min(limit, s.page))
}

func (s modest) Apply(ctx context.Context, changes []informer.Change, bookmark string) error {
	if s.deaf {
		ctx = context.WithoutCancel(ctx)
	}
	err := s.durable.Apply(ctx, changes, bookmark)
	s.life.note(changes, err)
	s.life.doubtful.Store(err != nil && !errors.Is(err, informer.ErrPermanent))
	return err
}

func (s modest) Forget(ctx context.Context, tombstones map[string][]types.UID) error {
	s.life.mu.Lock()
	for _, uids := range tombstones {
		for _, uid := range uids {
			delete(s.life.kept, uid) // even if Forget fails: every watcher has handled them
		}
	}
	s.life.mu.Unlock()
	return s.durable.Forget(ctx, tombstones)
}

// note records the tombstones that an Apply may have left, and the objects that it stored.
func (l *life) note(changes []informer.Change, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range changes {
		switch uid := c.Object.GetUID(); {
		case !c.Delete:
			l.alive[uid] = true
		case err == nil:
			l.kept[uid] = true
		}
	}
}

// tombstones returns the tombstones that some watcher may not have handled.
func (l *life) tombstones() map[types.UID]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.kept)
}
