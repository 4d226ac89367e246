package relay_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAgentsConvergeWhenTheAPIServerIsRestored(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute: make soak")
	}
	w := newWorld(t)
	w.create(20)
	etcd, backup := filepath.Join(w.dir, "etcd"), filepath.Join(t.TempDir(), "etcd")
	w.restart(func() { w.copy(etcd, backup) })
	r := w.relay(w.front.config(), t.TempDir(), nil)
	behind := w.relay(r.config, "", nil)
	all := append(w.followers(r.config), w.followers(behind.config)...)
	for i := range 30 {
		w.ok(w.set(t.Context(), fmt.Sprint("l", i), "lost"))
	}
	w.ok(w.leases.Delete(t.Context(), "l0", metav1.DeleteOptions{}))
	w.awaitEqual(all)
	lost := w.truth()
	w.restart(func() {
		w.ok(os.RemoveAll(etcd))
		w.copy(backup, etcd)
	})
	if n := len(w.truth()); n != 20 || len(lost) != 29 {
		t.Fatalf("the API server has %d objects, and had %d, want 20 and 29", n, len(lost))
	}
	w.awaitEqual(all)
	t.Logf("restored; the API server was asked for %v", w.front.asked(0))
	for i := range 5 {
		w.ok(w.set(t.Context(), fmt.Sprint("l", 10+i), "after"))
	}
	w.awaitEqual(all)
}

// restart stops the API server, calls files, which may change etcd's files, and starts the API server again.
func (w *world) restart(files func()) {
	w.Helper()
	w.server.Stop()
	files()
	w.serve()
	w.await("the Leases are not served", func() bool {
		_, err := w.leases.List(w.Context(), metav1.ListOptions{Limit: 1})
		return err == nil
	})
	w.front.to(w.T, w.server.Config())
}

// copy copies a directory, which must not exist yet.
func (w *world) copy(from, to string) {
	w.Helper()
	w.ok(os.CopyFS(to, os.DirFS(from)))
}
