package relay_test

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAgentsConvergeWhenTheAPIServerIsRestored(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute: make soak")
	}
	w := newWorld(t)
	w.create(20)
	w.restart(w.server.BackUp)
	r := w.relay(w.front.Config(), t.TempDir(), nil)
	behind := w.relay(r.config, "", nil)
	all := append(w.followers(r.config), w.followers(behind.config)...)
	for i := range 30 {
		w.OK(w.set(t.Context(), fmt.Sprint("l", i), "lost"))
	}
	w.OK(w.leases.Delete(t.Context(), "l0", metav1.DeleteOptions{}))
	w.awaitEqual(all)
	lost := w.truth()
	w.restart(w.server.Restore)
	if n := len(w.truth()); n != 20 || len(lost) != 29 {
		t.Fatalf("the API server has %d objects, and had %d, want 20 and 29", n, len(lost))
	}
	w.awaitEqual(all)
	t.Logf("restored; the API server was asked for %v", w.front.asked(0))
	for i := range 5 {
		w.OK(w.set(t.Context(), fmt.Sprint("l", 10+i), "after"))
	}
	w.awaitEqual(all)
}

// restart restarts the API server, and calls files, which may change etcd's files, in between.
func (w *world) restart(files func()) {
	w.Helper()
	w.server.Restart(files)
	w.leases = leasesOf(w, w.server.Config())
	w.Await("the Leases are not served", func() bool {
		_, err := w.leases.List(w.Context(), metav1.ListOptions{Limit: 1})
		return err == nil
	})
	w.OK(w.front.To(w.server.Config()))
}
