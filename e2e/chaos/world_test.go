package chaos_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/customcacheinformer/informer/e2e/apiserver"
	"github.com/customcacheinformer/informer/e2e/internal/stage"
)

type object = *unstructured.Unstructured

// world is an API server, the writers that change its objects, and the informers that follow
// it through failures.
type world struct {
	stage.T
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
	server *stage.Server
	client dynamic.Interface // bypasses proxy and front
	crds   clientset.Interface
}

func newWorld(t *testing.T) *world {
	w := &world{T: stage.T{T: t}, front: newFront(), kinds: allKinds()}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	t.Cleanup(w.front.Close)
	w.server = w.Server()
	t.Cleanup(w.close)
	w.connect()
	for _, k := range w.kinds {
		_, err := w.server.InstallDefinition(w.ctx, k.definition())
		w.OK(err)
	}
	random := rand.New(rand.NewPCG(1, 1))
	for range 100 {
		for _, k := range w.kinds {
			w.OK(w.write(k, random))
		}
	}
	w.restarted(w.server.BackUp)
	var err error
	w.proxy, err = apiserver.NewProxy(w.front.Config())
	w.OK(err)
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
}

// connect has the clients and the front reach the server.
func (w *world) connect() {
	w.Helper()
	var err error
	w.client, err = dynamic.NewForConfig(w.server.Config())
	w.OK(err)
	w.crds, err = clientset.NewForConfig(w.server.Config())
	w.OK(err)
	w.OK(w.front.To(w.server.Config()))
}

// restarted restarts the server, calls do, which may change the files, in between, and waits until the server
// serves all kinds that these files contain. Nothing may write in the meantime.
func (w *world) restarted(do func()) {
	w.Helper()
	w.server.Restart(do)
	w.connect()
	for _, k := range w.kinds {
		w.AwaitServed(w.client, k.resources()...)
	}
}

// state returns the objects on the server that a follower must know: the version of each by
// its key, and the set of all UIDs.
func (w *world) state(f follower) (map[string]string, map[types.UID]bool) {
	w.Helper()
	s := f.about()
	list, err := w.client.Resource(s.resource).Namespace(s.namespace).List(w.ctx, metav1.ListOptions{LabelSelector: s.selector})
	w.OK(err)
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
