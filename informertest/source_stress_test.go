package informertest_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/customcacheinformer/informer/informertest"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// follower keeps a copy of the source's objects, and notes each impossible event: one that is
// out of order, is delivered twice, or adds an object that exists or changes one that does
// not.
type follower struct {
	objects  map[string]*corev1.ConfigMap
	version  uint64
	problems []string
}

// follow lists and watches until ctx ends.
func (f *follower) follow(ctx context.Context, src *configMapSource) {
	for ctx.Err() == nil {
		list, err := src.ListWithContext(ctx, metav1.ListOptions{})
		if err != nil {
			continue
		}
		answer := list.(*metav1.List)
		f.version, _ = strconv.ParseUint(answer.ResourceVersion, 10, 64)
		f.objects = map[string]*corev1.ConfigMap{}
		for _, item := range answer.Items {
			obj := item.Object.(*corev1.ConfigMap)
			f.objects[obj.Name] = obj
		}
		for f.watch(ctx, src) {
		}
	}
}

// watch reads one watch to its end and reports whether another can follow.
func (f *follower) watch(ctx context.Context, src *configMapSource) bool {
	w, err := src.WatchWithContext(ctx, metav1.ListOptions{ResourceVersion: fmt.Sprint(f.version), AllowWatchBookmarks: true})
	if err != nil {
		return false
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		if e.Type == watch.Error {
			return false
		}
		f.take(e)
	}
	return ctx.Err() == nil
}

func (f *follower) take(e watch.Event) {
	obj := e.Object.(*corev1.ConfigMap)
	version, _ := strconv.ParseUint(obj.ResourceVersion, 10, 64)
	_, known := f.objects[obj.Name]
	isChange := e.Type != watch.Bookmark
	if version < f.version || isChange && (version == f.version || known == (e.Type == watch.Added)) {
		f.problems = append(f.problems, fmt.Sprintf("%s after %d", describe(e), f.version))
	}
	f.version = version
	switch e.Type {
	case watch.Added, watch.Modified:
		f.objects[obj.Name] = obj
	case watch.Deleted:
		delete(f.objects, obj.Name)
	}
}

func TestConcurrentWatchesDeliverEachChangeOnceAndInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource[*corev1.ConfigMap]()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var readers, writers sync.WaitGroup
		followers := make([]follower, 4)
		for i := range followers {
			readers.Go(func() { followers[i].follow(ctx, src) })
		}
		for range 3 {
			writers.Go(func() { writeAtRandom(src) })
		}
		writers.Go(func() { provokeAtRandom(src) })
		writers.Wait()
		src.Heal()
		if err := src.WaitForWatches(ctx, len(followers)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		cancel()
		readers.Wait()

		want := map[string]*corev1.ConfigMap{}
		for _, obj := range src.Objects() {
			want[obj.Name] = obj
		}
		for i, f := range followers {
			if diff := cmp.Diff(want, f.objects); diff != "" {
				t.Errorf("follower %d (-source +got):\n%s", i, diff)
			}
			for _, problem := range f.problems {
				t.Errorf("follower %d: %s", i, problem)
			}
		}
		if n := src.Watches(); n != 0 {
			t.Errorf("%d watches are open", n)
		}
	})
}

func writeAtRandom(src *configMapSource) {
	for i := range 300 {
		name := fmt.Sprint("name-", rand.IntN(5))
		if rand.IntN(3) == 0 {
			_, _ = src.Delete(keyOf(name)) // it may not exist
		} else {
			src.Apply(configMap(name, fmt.Sprint(i)))
		}
	}
}

func provokeAtRandom(src *configMapSource) {
	faults := []func(){
		src.Disconnect, src.Expire, src.Compact, src.Bookmark, src.Heal,
		func() { src.SetFaults(informertest.Faults{Mute: true}) },
		func() { src.SetFaults(informertest.Faults{}) },
		func() { src.Objects() },
		func() { src.Requests() },
		func() { src.Fail("watch", context.DeadlineExceeded, 1) },
	}
	for range 200 {
		faults[rand.IntN(len(faults))]()
	}
}
