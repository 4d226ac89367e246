package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/lab"
)

func stormSection(sz sizes) section {
	st := storm{sz.joiners, sz.cached / 10, sz.cached / 10}
	s := section{
		name:  "storm",
		title: "A storm of joins",
		about: fmt.Sprintf("%d goroutines add a handler and remove it, again and again without a pause, ", st.joiners) +
			fmt.Sprintf("at an informer that holds %d objects, while %d updates come as fast as the side takes them. ", st.objects, st.events) +
			"The time is that until a handler that was there before has been called for all updates. In half of the rows a handler is removed as soon as it is added. " +
			"In the other half it is removed once it has been called for all objects. " +
			"A plain store is one that has no indexes and is not known to the library. Only our side can use one, so client-go's figure is that of its own store.",
	}
	for _, of := range []struct {
		name        string
		plain, stay bool
	}{
		{"storm of joins", false, false},
		{"storm of joins that get everything", false, true},
		{"storm of joins, plain store", true, false},
		{"storm of joins that get everything, plain store", true, true},
	} {
		s.cases = append(s.cases, measurement{
			rows: named(of.name, row{unit: "ms", floor: both(1)}, row{name: ": joins", unit: "/s", higher: true, plain: true}),
			measure: func(ctx context.Context, side side) ([]float64, error) {
				return st.measure(ctx, side, of.plain, of.stay)
			},
		})
	}
	return s
}

// storm is how many goroutines join and leave, over how many objects, while how many events
// come.
type storm struct{ joiners, objects, events int }

// plainStore hides everything of client-go's store that a cache.Store does not have.
type plainStore struct{ cache.Store }

// measure returns the milliseconds until all events are through, and the joins in a second.
func (st storm) measure(ctx context.Context, s side, plain, stay bool) (values []float64, err error) {
	var opts options
	if plain {
		opts.Store = plainStore{cache.NewStore(cache.MetaNamespaceKeyFunc)}
	}
	handled := newTally(1)
	inf, err := launch(ctx, s, opts, st.objects, 1, func(int) func(pod) { return count[pod](handled, st.objects+st.events) })
	defer inf.stop(&err)
	if err != nil {
		return nil, err
	}
	events := updates(st.objects, st.events)
	storming, calm := context.WithCancel(ctx)
	var joins atomic.Int64
	stormed := make(chan error, 1)
	begin := restart()
	go func() {
		stormed <- lab.Divide(st.joiners, st.joiners, func(int) error {
			for more := true; more; more = storming.Err() == nil { // at least once: a few events are through at once
				if err := st.join(storming, inf, stay); err != nil {
					return err
				}
				joins.Add(1)
			}
			return nil
		})
	}()
	inf.src.feed(events)
	err = handled.wait(ctx)
	took := time.Since(begin)
	calm()
	err = errors.Join(err, <-stormed)
	return []float64{milliseconds(took), float64(joins.Load()) / took.Seconds()}, err
}

// join adds a handler and removes it: at once, or if stay is set when the handler has been called
// for every object or ctx is done.
func (st storm) join(ctx context.Context, inf subject[pod], stay bool) error {
	reg, err := inf.add(func(pod) {}, informer.WatcherOptions{})
	if err != nil {
		return err
	}
	if stay {
		select {
		case <-reg.synced:
		case <-ctx.Done():
		}
	}
	return reg.remove()
}
