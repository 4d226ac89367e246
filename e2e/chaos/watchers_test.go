package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/e2e/internal/stage"
	"github.com/customcacheinformer/informer/informertest"
)

// recorder is a watcher that checks its events.
type recorder[T informer.Object] struct{ informertest.Recorder[T] }

func (r *recorder[T]) believes() map[string]string {
	have := map[string]string{}
	for _, obj := range r.View() {
		have[keyOf(obj)] = versionOf(obj)
	}
	return have
}

// ledger is a watcher that records the state of objects. At random it fails or panics, before
// it records an event.
type ledger[T informer.Object] struct {
	mu    sync.Mutex // protects the rest
	state map[string]string
}

var errOnPurpose = errors.New("on purpose")

func (l *ledger[T]) note(_ context.Context, e informer.Event[T]) error {
	switch rand.IntN(20) {
	case 0:
		panic(errOnPurpose)
	case 1, 2:
		return errOnPurpose
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.Type == informer.EventDeleted {
		delete(l.state, keyOf(e.Old))
	} else {
		l.state[keyOf(e.New)] = versionOf(e.New)
	}
	return nil
}

func (l *ledger[T]) believes() map[string]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.state)
}

func (l *ledger[T]) Err() error { return nil }

func (f *following[T]) addStaying(l *life[T]) {
	add := func(name string, w informer.ResourceWatcher[T], v view, opts informer.WatcherOptions) {
		opts.Name = name
		_, err := l.inf.AddWatcher(w, opts)
		f.OK(err)
		l.views[name] = v
	}
	teller := &recorder[T]{}
	teller.Hook = f.tell
	add("recorder", teller, teller, informer.WatcherOptions{MaxBacklog: -1})

	slow := &recorder[T]{}
	slow.Hook = func(ctx context.Context, _ informer.Event[T]) error {
		stage.Pass(ctx, time.Duration(rand.IntN(4))*time.Millisecond)
		return ctx.Err()
	}
	add("slow", slow, slow, informer.WatcherOptions{MaxBacklog: 20})

	fails := &ledger[T]{state: map[string]string{}}
	add("fails", informer.WatcherFunc[T](fails.note), fails, informer.WatcherOptions{
		Workers: 4, RecoverPanics: true, Retry: informer.Backoff(5*time.Millisecond, 50*time.Millisecond, 0),
	})
}

// visit makes watchers join and leave, one after the other, until the test ends.
func (f *following[T]) visit() {
	for f.ctx.Err() == nil {
		r := &recorder[T]{}
		reg, err := f.life().inf.AddWatcher(r, anyOptions(rand.IntN, 50*time.Millisecond))
		if err != nil {
			if !errors.Is(err, informer.ErrStopped) {
				f.fail(err)
			}
			stage.Pass(f.ctx, 10*time.Millisecond) // a new life is about to begin
			continue
		}
		stay := time.Duration(rand.IntN(300)) * time.Millisecond
		if rand.IntN(3) > 0 {
			stage.Pass(f.ctx, stay)
		} else {
			within, cancel := context.WithTimeout(f.ctx, stay)
			select {
			case <-reg.Synced():
			case <-within.Done():
			}
			cancel()
		}
		reg.Remove()
		<-reg.Stopped()
		if err := r.Err(); err != nil {
			f.fail(fmt.Errorf("a watcher that has left: %w", err))
		}
	}
}

// anyOptions returns options that intn chooses.
func anyOptions(intn func(int) int, resync time.Duration) informer.WatcherOptions {
	var opts informer.WatcherOptions
	if intn(2) == 0 {
		opts.MaxBacklog = intn(100) - 1
	}
	if intn(2) == 0 {
		opts.Workers = intn(5)
	}
	if intn(3) == 0 {
		opts.Retry = informer.Backoff(time.Millisecond, time.Second, 3)
	}
	if intn(3) == 0 {
		opts.ResyncPeriod = resync
	}
	if intn(3) == 0 {
		opts.OnSynced = func(context.Context) {}
	}
	return opts
}
