package kubernetes_test

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
)

// told is one event of an informer.
type told struct {
	what          string
	before, after *corev1.Pod // a delete has before, an add has after
}

// ledger has all events of an informer, by the name of the Pod. It is a watcher of this library's
// informer, and a handler of client-go's.
type ledger struct {
	mu     sync.Mutex // protects events
	events map[string][]told
}

func newLedger() *ledger { return &ledger{events: map[string][]told{}} }

func (l *ledger) note(name string, event told) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events[name] = append(l.events[name], event)
}

// watcher returns the watcher of this library's informer.
func (l *ledger) watcher() informer.ResourceWatcher[*corev1.Pod] {
	return informer.WatcherFunc[*corev1.Pod](func(_ context.Context, e informer.Event[*corev1.Pod]) error {
		what := e.Type.String()
		if e.FinalStateUnknown || e.Merged {
			what += fmt.Sprintf(" (unknown %v, merged %v)", e.FinalStateUnknown, e.Merged)
		}
		l.note(e.Key().Name, told{what, e.Old, e.New})
		return nil
	})
}

// handler returns the handler of client-go's informer.
func (l *ledger) handler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			pod := obj.(*corev1.Pod)
			l.note(pod.Name, told{what: "added", after: pod})
		},
		UpdateFunc: func(before, after any) {
			pod := after.(*corev1.Pod)
			l.note(pod.Name, told{"updated", before.(*corev1.Pod), pod})
		},
		DeleteFunc: func(obj any) {
			if unknown, is := obj.(cache.DeletedFinalStateUnknown); is {
				pod := unknown.Obj.(*corev1.Pod)
				l.note(pod.Name, told{what: "deleted (unknown)", before: pod})
				return
			}
			pod := obj.(*corev1.Pod)
			l.note(pod.Name, told{what: "deleted", before: pod})
		},
	}
}

// has reports whether the last event of each Pod is about the version of last. That is "" for a Pod that
// was deleted.
func (l *ledger) has(last map[string]string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, version := range last {
		events := l.events[name]
		if len(events) == 0 {
			return false
		}
		got := ""
		if pod := events[len(events)-1].after; pod != nil {
			got = pod.ResourceVersion
		}
		if got != version {
			return false
		}
	}
	return true
}

// count returns the number of events.
func (l *ledger) count() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, events := range l.events {
		n += len(events)
	}
	return n
}
