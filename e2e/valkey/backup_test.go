package valkey_test

import (
	"fmt"
	"testing"

	"github.com/customcacheinformer/informer/e2e/internal/stage"
)

func TestReadersHaveTheStateOfAnAPIServerRestoredFromABackup(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 7 s: make soak")
	}
	server := stage.T{T: t}.Server() // it stops last, after the processes
	w := newWorldOn(stage.T{T: t}, server.Server)
	// restart restarts the API server, calls files, which may change etcd's files, in between, and has all reach it again.
	restart := func(files func()) {
		w.front.Leave()
		server.Restart(files)
		w.connect(server.Server)
		w.front.Away.Store(false)
	}
	for i := range 20 {
		w.object(fmt.Sprint("o", i))
	}
	restart(server.BackUp)
	writer := w.writer(role{Name: "writer", Token: 1})
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
	restart(server.Restore)
	if n := len(w.state()); n != 20 {
		t.Fatalf("the restored API server has %d objects, want 20", n)
	}
	w.converge(readers, "the restore")
	w.change(50)
	w.converge(readers, "changes after the restore")
	w.wantStored()
	if writer.has(func(m message) bool { return m.Ended != "" }) {
		t.Errorf("the writer exited: %q", writer.all(func(m message) string { return m.Ended }))
	}
}
