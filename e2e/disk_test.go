package e2e_test

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/e2e/apiserver"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/store"
	"github.com/customcacheinformer/informer/store/disk"
)

// The API server needs more than a minute to store 20,000 objects under the race detector.
var diskObjects = flag.Int("objects", 2000, "how many objects a disk store has; a fifth of that with -short")

// wire counts the requests and the bytes of their responses.
type wire struct {
	requests
	bytes atomic.Int64
}

func (w *wire) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := w.requests.RoundTrip(req)
	if err == nil {
		resp.Body = &counted{resp.Body, &w.bytes}
	}
	return resp, err
}

type counted struct {
	io.ReadCloser
	bytes *atomic.Int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.bytes.Add(int64(n))
	return n, err
}

// diskLife is an informer over a file, from the opening of the file to its closing.
type diskLife struct {
	store          *disk.Store
	stop           func()
	synced, having time.Duration // the time from the opening until Synced, and until the watcher has got everything
	asked          string
	bytes          int64
	events         *informertest.Recorder[object]
}

// liveOnDisk runs an informer over the file. It creates the object lastName, waits until the
// watcher has got it, and deletes it.
func (w *world) liveOnDisk(path string) *diskLife {
	w.t.Helper()
	last := make(chan struct{}, 1)
	l := &diskLife{events: &informertest.Recorder[object]{}}
	l.events.Hook = func(_ context.Context, e informer.Event[object]) error {
		// An earlier life may have left such an object in the file; that one does not count.
		if e.Type == informer.EventAdded && e.Key().Name == lastName && e.Origin == informer.OriginWatch {
			last <- struct{}{}
		}
		return nil
	}
	config, counts := server.Config(), &wire{}
	config.Wrap(func(rt http.RoundTripper) http.RoundTripper {
		counts.RoundTripper = rt
		return counts
	})
	client := w.client(config).Namespace(namespace)
	begun := time.Now()
	var err error
	l.store, err = disk.Open(path, &unstructured.Unstructured{}, disk.Options{
		Identity: store.Identity{Cluster: "e2e", Resource: w.gvr.String(), Namespace: namespace},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	inf, err := informer.NewFrom(informer.ListWatch(client), informer.Options[object]{
		Durable: l.store, Decode: informer.DecodeByClient, // otherwise the bytes of objects do not reach the wire outside
	})
	if err != nil {
		w.t.Fatal(err)
	}
	reg, err := inf.AddWatcher(l.events, informer.WatcherOptions{MaxBacklog: -1})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := inf.Run(ctx); err != nil {
			w.t.Error(err)
		}
	})
	l.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		if err := l.store.Close(); err != nil {
			w.t.Error(err)
		}
	})
	w.t.Cleanup(l.stop)
	<-inf.Synced()
	l.synced = time.Since(begun)
	<-reg.Synced()
	w.create(w.writers[0], lastName, 0)
	<-last
	l.having = time.Since(begun)
	l.asked, l.bytes = counts.take(), counts.bytes.Load()
	w.remove(w.writers[0], lastName)
	return l
}

var diskWorlds atomic.Int64

// newWorldOf returns a world without a proxy, whose kind is in a group that no other test
// uses, even with -count.
func newWorldOf(t *testing.T, group string) *world {
	group = fmt.Sprintf("g%d.%s", diskWorlds.Add(1), group)
	w := &world{t: t, gvk: schema.GroupVersionKind{Group: group, Version: "v1", Kind: "Widget"}}
	var err error
	if w.gvr, err = server.Install(t.Context(), apiserver.Kind{GroupVersionKind: w.gvk}); err != nil {
		t.Fatal(err)
	}
	for range clients {
		w.writers = append(w.writers, w.client(server.Config()).Namespace(namespace))
	}
	return w
}

func TestADiskStoreOnARealServer(t *testing.T) {
	w, objects := newWorldOf(t, "disk.example.com"), sized(*diskObjects)
	spec := strings.Repeat("0123456789abcdef", 64) // about 2 KiB with the managed fields
	inParts(objects, func(n int) {
		obj := w.widget(name(n), n)
		obj.Object["spec"].(map[string]any)["text"] = spec
		_, err := w.writers[n%clients].Create(t.Context(), obj, metav1.CreateOptions{})
		w.do(err)
	})
	path := filepath.Join(t.TempDir(), "widgets.db")
	cold := w.liveOnDisk(path)
	cold.stop()
	if got := len(cold.events.View()); got < objects || cold.asked != "list watch" {
		t.Fatalf("the cold start delivered %d objects and made the requests %q", got, cold.asked)
	}

	before := cold.events.View()
	gone, changed := map[types.UID]bool{}, map[types.NamespacedName]bool{}
	for n := 0; n < objects; n += 20 {
		key := types.NamespacedName{Namespace: namespace, Name: name(n)}
		switch n % 60 {
		case 0:
			changed[key] = true
			w.update(w.writers[0], name(n), -n-1)
		case 20:
			gone[before[key].GetUID()] = true
			w.remove(w.writers[0], name(n))
		default:
			gone[before[key].GetUID()], changed[key] = true, true
			w.remove(w.writers[0], name(n))
			w.create(w.writers[0], name(n), -n-1)
		}
	}

	warm := w.liveOnDisk(path)
	warm.stop()
	if warm.asked != "probe watch" {
		t.Errorf("the warm start made the requests %q, want a probe and a watch", warm.asked)
	}
	w.checkTold(warm, gone, changed)
	for _, l := range []struct {
		name string
		*diskLife
	}{{"cold", cold}, {"warm", warm}} {
		t.Logf("%s: Synced after %v, the watcher had everything after %v; requests: %s, which brought %d bytes", l.name, l.synced, l.having, l.asked, l.bytes)
	}
	t.Logf("%d objects: Synced is %.1f times as fast", objects, cold.synced.Seconds()/warm.synced.Seconds())
	// Times are not checked: on a busy machine they mean little.
	if warm.bytes > cold.bytes/5 {
		t.Errorf("a twentieth of the objects changed, and %d bytes came; the whole list takes %d", warm.bytes, cold.bytes)
	}
}

// inParts calls f once for each number below end, from several goroutines.
func inParts(end int, f func(n int)) {
	var all sync.WaitGroup
	for part := range clients {
		all.Go(func() {
			for n := part; n < end; n += clients {
				f(n)
			}
		})
	}
	all.Wait()
}

// checkTold fails the test unless the watcher ends with the state of the server, and was
// notified of the objects that were deleted and changed while it was not running.
func (w *world) checkTold(l *diskLife, gone map[types.UID]bool, changed map[types.NamespacedName]bool) {
	w.t.Helper()
	want, wrong := w.state(), 0
	view := l.events.View()
	delete(view, types.NamespacedName{Namespace: namespace, Name: lastName})
	delete(want, types.NamespacedName{Namespace: namespace, Name: lastName})
	for key, version := range want {
		if obj := view[key]; obj == nil || fmt.Sprintf("%s@%s", obj.GetUID(), obj.GetResourceVersion()) != version {
			wrong++
		}
	}
	if wrong > 0 || len(view) != len(want) {
		w.t.Errorf("the watcher has %d objects, of which %d are wrong; the server has %d", len(view), wrong, len(want))
	}
	told := map[types.NamespacedName]bool{}
	for _, e := range l.events.Events() {
		if e.Type == informer.EventDeleted {
			delete(gone, e.Old.GetUID())
		} else if e.Origin == informer.OriginWatch {
			told[e.Key()] = true
		}
	}
	for key := range changed {
		if !told[key] {
			w.t.Errorf("the watcher did not get the change of %v", key)
		}
	}
	if len(gone) > 0 {
		w.t.Errorf("the watcher did not get %d deletes: %v", len(gone), gone)
	}
	if err := l.events.Err(); err != nil {
		w.t.Error(err)
	}
}
