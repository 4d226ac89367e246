package shards_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/customcacheinformer/informer/e2e/apiserver"
	"github.com/customcacheinformer/informer/e2e/internal/stage"
	"github.com/customcacheinformer/informer/internal/lab"
)

// world is an API server, the replicas, those who write objects, and those who watch all that.
type world struct {
	stage.T
	ctx      context.Context // ends with the test
	begun    time.Time
	random   *rand.Rand
	server   *stage.Server
	beside   *lab.Child   // the other API server; nil if there is none
	other    *rest.Config // of it
	by       serving
	front    *front
	client   dynamic.Interface
	recorder *recorder
	owners   *owners
	truths   [kinds]*truth
	common   settings // of all replicas
	replicas map[string]*remote

	started, suspended int // how often
	verdict            verdict
	stale              int // calls that have seen less than a call before

	writing sync.WaitGroup
	stop    context.CancelFunc // ends all writing

	mu  sync.Mutex
	log strings.Builder
}

// resources are the custom resources of a world.
var resources = [kinds]schema.GroupVersionKind{
	{Group: "shards.example.com", Version: "v1", Kind: "Widget"},
	{Group: "shards.example.com", Version: "v1", Kind: "Gadget"},
}

var leaseKind = schema.GroupVersionKind{Group: "coordination.k8s.io", Version: "v1", Kind: "Lease"}

func newWorld(t *testing.T, seed int64) *world {
	w := &world{
		T: stage.T{T: t}, begun: time.Now(), by: served, random: rand.New(rand.NewPCG(uint64(seed), 1)),
		replicas: map[string]*remote{}, front: newFront(), recorder: newRecorder(rand.New(rand.NewPCG(uint64(seed), 2))),
		common: settings{Workers: 6, DrainTimeout: 2 * time.Second},
	}
	w.recorder.serve()
	w.owners = newOwners(w.note)
	ctx, cancel := context.WithCancel(context.Background())
	w.ctx = ctx
	var watching sync.WaitGroup
	t.Cleanup(w.front.Close)
	t.Cleanup(w.recorder.Close)
	w.server = w.Server()
	t.Cleanup(func() {
		if t.Failed() {
			w.print()
		}
		cancel()
		w.writing.Wait()
		watching.Wait()
		for _, r := range w.replicas {
			r.end()
		}
		w.stopBeside()
	})
	w.lead()
	var gvrs [kinds + 1]schema.GroupVersionResource
	for n, kind := range append(slices.Clone(resources[:]), leaseKind) {
		var err error
		gvrs[n], err = w.server.Install(ctx, apiserver.Kind{GroupVersionKind: kind})
		w.OK(err)
	}
	w.common.Widgets, w.common.Gadgets, w.common.Recorder = gvrs[widgets], gvrs[gadgets], w.recorder.URL
	var err error
	w.client, err = dynamic.NewForConfig(w.front.Config())
	w.OK(err)
	for kind := range kinds {
		w.truths[kind] = newTruth()
		watching.Go(func() {
			follow(ctx, w.client.Resource(gvrs[kind]), w.truths[kind].listed, w.truths[kind].changed)
		})
	}
	watching.Go(func() {
		follow(ctx, w.client.Resource(gvrs[kinds]).Namespace(leasesIn), w.owners.listed, w.owners.changed)
	})
	watching.Go(w.watchClock)
	watching.Go(w.probe)
	w.write()
	return w
}

// note keeps a line that is printed if the test fails.
func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fmt.Fprintf(&w.log, time.Now().Format(clock)+" "+format+"\n", args...)
}

// print prints all that is known.
func (w *world) print() {
	w.mu.Lock()
	w.Logf("what happened:\n%s", w.log.String())
	w.mu.Unlock()
	w.Logf("sessions: %s", w.owners.state())
	for _, name := range slices.Sorted(maps.Keys(w.replicas)) {
		text := w.replicas[name].Log.String()
		w.Logf("the log of %s:\n%s", name, text[max(0, len(text)-5000):])
	}
}

// watchClock looks at the owners, and notes when this process was not run for a while.
func (w *world) watchClock() {
	for last := time.Now(); stage.Pass(w.ctx, 20*time.Millisecond); last = time.Now() {
		if now := time.Now(); now.Sub(last) > longPause {
			w.recorder.report(report{From: last.UnixNano(), To: now.UnixNano()})
			w.note("the test was not run for %v", now.Sub(last))
		}
		w.owners.check()
	}
}

// probe writes all the time, to see how quick the API server is.
func (w *world) probe() {
	client := w.client.Resource(leaseKind.GroupVersion().WithResource("leases")).Namespace(leasesIn)
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(leaseKind)
	obj.SetName("probe")
	for n := int64(0); stage.Pass(w.ctx, 50*time.Millisecond); n++ {
		ctx, cancel := context.WithTimeout(w.ctx, lease)
		w.owners.probe(true)
		_, err := client.Patch(ctx, "probe", types.MergePatchType, fmt.Appendf(nil, `{"spec":{"leaseTransitions":%d}}`, n), metav1.PatchOptions{})
		if apierrors.IsNotFound(err) {
			_, _ = client.Create(ctx, obj, metav1.CreateOptions{})
		}
		w.owners.probe(false)
		cancel()
	}
}

// restart restarts the API server. It is down for some time at least.
func (w *world) restart(down time.Duration) {
	w.owners.serving(false)
	w.stopBeside()
	w.server.Restart(func() { stage.Pass(w.ctx, down) })
	if w.by != served {
		w.startBeside()
	}
	w.lead()
	w.awaitResources(w.client)
	w.owners.serving(true)
}

// write has objects written until w.stop is called.
func (w *world) write() {
	ctx, stop := context.WithCancel(w.ctx)
	w.stop = stop
	const writers = 6
	for n := range writers {
		kind, gvr := widgets, w.common.Widgets
		if n == writers-1 {
			kind, gvr = gadgets, w.common.Gadgets
		}
		writer := &writer{w.client.Resource(gvr), resources[kind], rand.New(rand.NewPCG(w.random.Uint64(), 3)), n, writers - 1}
		if kind == gadgets {
			writer.part, writer.of = 0, 1
		}
		w.writing.Go(func() { writer.write(ctx, 15*time.Millisecond) })
	}
}

// awaitAlive is like Await, but fails the test if a replica exited by itself.
func (w *world) awaitAlive(late string, there func() bool) {
	w.Helper()
	w.Await(late, func() bool {
		for _, r := range w.replicas {
			select {
			case <-r.Ended():
				w.Fatalf("the replica %s exited by itself:\n%s", r.name, r.Log)
			default:
			}
		}
		return there()
	})
}

// able returns the names of the replicas that could work.
func (w *world) able() (names []string) {
	for name, r := range w.replicas {
		if r.able {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// any returns a replica that could work.
func (w *world) any() *remote {
	names := w.able()
	return w.replicas[names[w.random.IntN(len(names))]]
}

// settle waits until the replicas that could work share the buckets.
func (w *world) settle() {
	w.Helper()
	begun, names := time.Now(), w.able()
	w.awaitAlive("the buckets are not shared", func() bool { return w.owners.settled(names) })
	w.note("settled after %v: %v", time.Since(begun).Round(time.Millisecond), names)
}
