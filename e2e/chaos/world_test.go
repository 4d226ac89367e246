package chaos_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/customcacheinformer/informer/e2e/apiserver"
)

type object = *unstructured.Unstructured

// world is an API server, the writers that change its objects, and the informers that follow
// it through failures.
type world struct {
	t         *testing.T
	dir       string // of etcd's files
	backup    string // an older copy of these files
	front     *front
	proxy     *apiserver.Proxy
	kinds     []*kind
	followers []follower
	writing   sync.WaitGroup
	visiting  sync.WaitGroup
	ctx       context.Context // for everything that runs
	cancel    context.CancelFunc
	written   atomic.Int64 // counts the writes; its value identifies a write

	pause  sync.RWMutex // held by every writer; locked to stop all writing; protects the rest
	server *apiserver.Server
	client dynamic.Interface // bypasses proxy and front
	crds   clientset.Interface
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, dir: t.TempDir(), backup: filepath.Join(t.TempDir(), "etcd"), front: newFront(), kinds: allKinds()}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	t.Cleanup(w.close)
	w.serve()
	for _, k := range w.kinds {
		if _, err := w.server.InstallDefinition(w.ctx, k.definition()); err != nil {
			t.Fatal(err)
		}
	}
	random := rand.New(rand.NewPCG(1, 1))
	for range 100 {
		for _, k := range w.kinds {
			w.do("writing", w.write(k, random))
		}
	}
	w.restarted(w.backUp)
	var err error
	if w.proxy, err = apiserver.NewProxy(w.front.config()); err != nil {
		t.Fatal(err)
	}
	for _, k := range w.kinds {
		w.writing.Go(func() { w.keepWriting(k) })
	}
	return w
}

func (w *world) close() {
	w.cancel()
	w.writing.Wait()
	w.visiting.Wait()
	for _, f := range w.followers {
		f.stop()
	}
	if w.proxy != nil {
		w.proxy.Close()
	}
	if w.server != nil {
		w.server.Stop()
	}
	w.front.Close()
}

// do fails the test at once if err is not nil.
func (w *world) do(what string, err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatalf("%s: %v", what, err)
	}
}

// serve starts a server over the files in dir, and waits until it serves all kinds that these
// files contain. Nothing may write in the meantime.
func (w *world) serve() {
	server, err := apiserver.StartIn(w.ctx, w.dir)
	w.do("starting the server", err)
	first := w.server == nil
	w.server = server
	w.client, err = dynamic.NewForConfig(server.Config())
	w.do("client", err)
	w.crds, err = clientset.NewForConfig(server.Config())
	w.do("client", err)
	w.do("front", w.front.lead(server.Config()))
	if first {
		return
	}
	for _, k := range w.kinds {
		w.waitServed(k)
	}
}

// waitServed waits until a kind is served in all its versions.
func (w *world) waitServed(k *kind) {
	for _, resource := range k.resources() {
		w.await(fmt.Sprintf("%v is not served", resource), func() bool {
			_, err := w.client.Resource(resource).List(w.ctx, metav1.ListOptions{Limit: 1})
			return err == nil
		})
	}
}

// restarted stops the server, calls do, which may change the files, and starts the server
// again. Nothing may write in the meantime.
func (w *world) restarted(do func()) {
	w.server.Stop()
	do()
	w.serve()
}

// backUp copies the files of etcd while no server runs. restore puts them back.
func (w *world) backUp() { w.copyFiles(filepath.Join(w.dir, "etcd"), w.backup) }

func (w *world) restore() { w.copyFiles(w.backup, filepath.Join(w.dir, "etcd")) }

func (w *world) copyFiles(from, to string) {
	w.do("etcd's files", os.RemoveAll(to))
	w.do("etcd's files", os.CopyFS(to, os.DirFS(from)))
}

// await polls until there returns true. It fails the test with late if that takes too long.
func (w *world) await(late string, there func() bool) {
	w.t.Helper()
	deadline := time.Now().Add(patience)
	for !there() {
		if time.Now().After(deadline) {
			w.t.Fatal(late)
		}
		pass(w.ctx, 10*time.Millisecond)
	}
}

// pass waits for the time d. It returns false if ctx ends first.
func pass(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// state returns the objects on the server that a follower must know: the version of each by
// its key, and the set of all UIDs.
func (w *world) state(f follower) (map[string]string, map[types.UID]bool) {
	w.t.Helper()
	s := f.about()
	list, err := w.client.Resource(s.resource).Namespace(s.namespace).List(w.ctx, metav1.ListOptions{LabelSelector: s.selector})
	w.do("list", err)
	state, uids := map[string]string{}, map[types.UID]bool{}
	for i := range list.Items {
		state[keyOf(&list.Items[i])] = versionOf(&list.Items[i])
		uids[list.Items[i].GetUID()] = true
	}
	return state, uids
}

// written is an annotation that tells states of an object apart whose resourceVersions are
// equal: one from before etcd was restored, and one from after that.
const written = "written"

func keyOf(obj metav1.Object) string { return obj.GetNamespace() + "/" + obj.GetName() }

func versionOf(obj metav1.Object) string {
	return fmt.Sprintf("%s@%s#%s", obj.GetUID(), obj.GetResourceVersion(), obj.GetAnnotations()[written])
}
