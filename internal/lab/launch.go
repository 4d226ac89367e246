package lab

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
)

// Launch measures the start of an informer of Pods with one watcher.
type Launch struct {
	Synced, All time.Duration // until Synced, and until the watcher has all
	CPU         time.Duration // of the process
	Peak        float64       // of anonymous memory

	begun time.Time
	peak  func() float64
}

// NewLaunch begins a measurement.
func NewLaunch() *Launch { return &Launch{begun: time.Now(), peak: WatchAnonymous()} }

// Since returns the time since the beginning.
func (l *Launch) Since() time.Duration { return time.Since(l.begun) }

// Done ends the measurement. It must be called when the watcher has got all events.
func (l *Launch) Done() { l.All, l.CPU, l.Peak = l.Since(), CPU(), l.peak() }

// Run starts an informer with one watcher, waits until the watcher has synced, and calls Done. It returns
// an error if the watcher was not called for exactly this number of events. The informer runs until stop
// is called.
func (l *Launch) Run(ctx context.Context, source cache.ListerWatcher, opts informer.Options[Pod], events int) (
	inf *informer.CustomCacheInformer[Pod], stop func() error, err error) {
	if inf, err = informer.NewFrom(source, opts); err != nil {
		return nil, nil, err
	}
	var called atomic.Int64
	reg, err := inf.AddWatcher(informer.WatcherFunc[Pod](func(context.Context, informer.Event[Pod]) error {
		called.Add(1)
		return nil
	}), informer.WatcherOptions{})
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- inf.Run(ctx) }()
	stop = func() error { cancel(); return <-ended }
	select {
	case <-inf.Synced():
		l.Synced = l.Since()
		<-reg.Synced()
	case err := <-ended:
		cancel()
		return nil, nil, errors.Join(err, context.Cause(ctx))
	}
	l.Done()
	if n := called.Load(); n != int64(events) {
		return nil, nil, errors.Join(fmt.Errorf("the watcher was called for %d events, want %d", n, events), stop())
	}
	return inf, stop, nil
}
