package main

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
)

type pod = *corev1.Pod

// watchBuffer is the number of events of a watch that may wait for the informer. The decoder
// of a real watch has the same number.
const watchBuffer = 100

// source answers one list and one watch. It costs next to nothing, because the objects are
// made beforehand. It refuses to stream the first state, so both sides list.
type source struct {
	list   chan *corev1.PodList // holds one list until it is fetched
	events chan watch.Event

	sending sync.WaitGroup
}

// newSource returns a source of n pods. Its watch brings the events that are sent to the field
// events.
func newSource(n int) *source {
	s := &source{list: make(chan *corev1.PodList, 1), events: make(chan watch.Event, watchBuffer)}
	list := &corev1.PodList{Items: make([]corev1.Pod, n)}
	for i := range list.Items {
		newPod(i, i+1, -1-i).DeepCopyInto(&list.Items[i])
	}
	list.ResourceVersion = strconv.Itoa(n)
	s.list <- list
	return s
}

// newPod returns the i-th pod in version v. Its generation is its place in the stream of
// events; a handler uses it to find its record of the event. A place below 0 means that the
// pod is in the list and not in the stream.
func newPod(i, v, place int) pod {
	name := fmt.Sprintf("pod-%06d", i)
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: name, UID: types.UID(name), ResourceVersion: strconv.Itoa(v),
		Generation: int64(place), Labels: map[string]string{"app": name},
	}}
}

// update returns the event at a place of the stream. The stream updates the n pods of a source
// in turn.
func update(n, place int) watch.Event {
	return watch.Event{Type: watch.Modified, Object: newPod(place%n, n+1+place, place)}
}

// updates returns the first count events of that stream.
func updates(n, count int) []watch.Event {
	events := make([]watch.Event, count)
	for i := range events {
		events[i] = update(n, i)
	}
	return events
}

func (s *source) listWatch() cache.ListerWatcher {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
			select {
			case list := <-s.list:
				return list, nil
			default:
				return nil, apierrors.NewInternalError(fmt.Errorf("the source is listed twice"))
			}
		},
		WatchFuncWithContext: func(_ context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			if opts.SendInitialEvents != nil && *opts.SendInitialEvents {
				return nil, apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("ListOptions").GroupKind(), "", nil)
			}
			return watch.NewProxyWatcher(s.events), nil
		},
	}
}

// feed sends events as fast as the informer takes them.
func (s *source) feed(events []watch.Event) {
	s.sending.Go(func() {
		for _, e := range events {
			s.events <- e // no select here: it would be a good part of the measured time
		}
	})
}

// drop drops the events of feed that are left after the informer has stopped.
func (s *source) drop() {
	go func() { s.sending.Wait(); close(s.events) }()
	for range s.events {
		continue
	}
}

// send sends one event. It returns an error if ctx ends first.
func (s *source) send(ctx context.Context, e watch.Event) error {
	select {
	case s.events <- e:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("an event is not taken: %w", context.Cause(ctx))
	}
}

// tally knows when each of several watchers has been called often enough. It counts calls,
// because the last event of a stream need not be the last to arrive: DeltaFIFO combines the
// waiting events of one object.
type tally struct {
	left atomic.Int64
	done chan struct{}
}

func newTally(watchers int) *tally {
	t := &tally{done: make(chan struct{})}
	t.left.Store(int64(watchers))
	return t
}

// one reports that one of the watchers has had everything.
func (t *tally) one() {
	if t.left.Add(-1) == 0 {
		close(t.done)
	}
}

func (t *tally) wait(ctx context.Context) error {
	return await(ctx, t.done, "the watchers have not been called for everything")
}

// await waits until closed is closed. If ctx ends first, it returns an error that begins with
// what.
func await(ctx context.Context, closed <-chan struct{}, what string) error {
	select {
	case <-closed:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", what, context.Cause(ctx))
	}
}

// count returns a handler that only counts its calls.
func count[T informer.Object](t *tally, calls int) func(T) {
	// The counter is as large as two cache lines. If it were smaller, watchers on different cores would wait for each
	// other's counters, and that would be a good part of the cost of an event.
	counter := &struct {
		left int
		_    [120]byte
	}{left: calls}
	return func(T) {
		if counter.left--; counter.left == 0 {
			t.one()
		}
	}
}
