package valkey_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/customcacheinformer/informer/e2e/apiserver"
)

func TestReadersHaveTheStateOfAnAPIServerThatIsRestoredFromABackup(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 7 s: make test-long")
	}
	dir := t.TempDir()
	etcd, backup := filepath.Join(dir, "etcd"), filepath.Join(t.TempDir(), "etcd")
	server, err := apiserver.StartIn(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Stop() }) // the last one, after the processes
	w := newWorldOn(t, server)
	// restart stops the API server, calls files, which may change etcd's files, and starts it again.
	restart := func(files func()) {
		w.front.cut()
		w.server.Stop()
		files()
		server, err = apiserver.StartIn(t.Context(), dir)
		w.ok(err)
		w.server = server
		w.connect()
		w.await("the objects are not served", func() bool {
			_, err := w.objects.List(t.Context(), metav1.ListOptions{Limit: 1})
			return err == nil
		})
		w.ok(w.front.to(server.Config()))
		w.front.back()
	}
	for i := range 20 {
		w.object(fmt.Sprint("o", i))
	}
	restart(func() { w.ok(os.CopyFS(backup, os.DirFS(etcd))) })
	writer := w.start(role{Name: "writer", Token: 1})
	w.await("the writer has not synced", func() bool { return writer.has(synced) })
	readers := []*actor{
		w.start(role{Name: "reader 0", Informers: 5, Back: true}),
		w.start(role{Name: "reader 1", Informers: 5, Back: true}),
	}
	w.converge(readers, "the start")
	for i := range 30 { // the backup has none of this
		w.object(fmt.Sprint("o", 10+i))
	}
	w.remove("o0")
	w.converge(readers, "what will be lost")
	restart(func() {
		w.ok(os.RemoveAll(etcd))
		w.ok(os.CopyFS(etcd, os.DirFS(backup)))
	})
	if n := len(w.state()); n != 20 {
		t.Fatalf("the restored API server has %d objects, want 20", n)
	}
	w.converge(readers, "the restore")
	w.change(50)
	w.converge(readers, "changes after the restore")
	w.wantStored()
	if writer.has(func(m message) bool { return m.Ended != "" }) {
		t.Errorf("the writer has ended: %q", writer.all(func(m message) string { return m.Ended }))
	}
}
