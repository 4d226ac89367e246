package shards_test

import (
	"context"
	"fmt"
	"syscall"

	"github.com/customcacheinformer/informer/e2e/apiserver"
	"github.com/customcacheinformer/informer/e2e/internal/process"
	"github.com/customcacheinformer/informer/e2e/internal/stage"
)

// remote is a replica as the test sees it.
type remote struct {
	*process.Process
	name            string
	leases, objects *apiserver.Proxy
	able            bool // not stopped, and not cut off
}

// start starts a replica.
func (w *world) start() *remote {
	w.Helper()
	w.started++
	r := &remote{name: fmt.Sprint("r", w.started), able: true}
	var err error
	r.leases, err = apiserver.NewProxy(w.front.Config())
	w.OK(err)
	r.objects, err = apiserver.NewProxy(w.front.Config())
	w.OK(err)
	s := w.common
	s.Name, s.Leases, s.Objects = r.name, process.AddressOf(r.leases.Config()), process.AddressOf(r.objects.Config())
	r.Process, err = process.Self("replica", s, nil)
	w.OK(err)
	w.replicas[r.name] = r
	w.owners.set(r.name, true)
	w.note("%s: started", r.name)
	return r
}

// end ends the process of a replica, and what belongs to it.
func (r *remote) end() {
	r.Kill()
	r.leases.Close()
	r.objects.Close()
}

// gone forgets a replica that does not run any more.
func (w *world) gone(r *remote) {
	w.Helper()
	w.owners.set(r.name, false)
	r.end()
	calls := w.recorder.killed(r.name)
	w.note("%s: exited, with %d calls open", r.name, calls)
	if err := r.Crashed(); err != nil {
		w.Errorf("%s: %v", r.name, err)
	}
	w.note("the log of %s:\n%s", r.name, r.Log)
	delete(w.replicas, r.name)
}

// leave has a replica end by SIGTERM.
func (w *world) leave(r *remote) {
	w.Helper()
	w.note("%s: SIGTERM", r.name)
	ctx, cancel := context.WithTimeout(w.ctx, stage.Patience)
	defer cancel()
	w.OK(r.Stop(ctx))
	if w.recorder.killed(r.name) > 0 {
		w.Errorf("%s exited while calls were under way", r.name)
	}
	w.gone(r)
}

// kill ends a replica by SIGKILL.
func (w *world) kill(r *remote) {
	w.note("%s: SIGKILL", r.name)
	r.Kill()
	w.recorder.crashed(r.name)
	w.gone(r)
}

// suspend stops the process of a replica during a call.
func (w *world) suspend(r *remote) {
	w.order(r, order{For: lease})
	w.suspended++
	w.OK(r.Pause(w.ctx))
	r.able = false
	w.owners.set(r.name, false)
	w.note("%s: SIGSTOP, with %d calls", r.name, w.recorder.stopped(r.name))
}

func (w *world) resume(r *remote) {
	w.note("%s: SIGCONT", r.name)
	w.recorder.resumes(r.name)
	w.OK(r.Signal(syscall.SIGCONT))
	r.able = true
	w.owners.set(r.name, true)
}

// cut cuts a replica off from the API server, or only from the Leases: then events still lead to keys,
// on which it must not work.
func (w *world) cut(r *remote) {
	all := w.random.IntN(2) == 0
	w.note("%s: cut off; from the objects, too: %v", r.name, all)
	r.able = false
	w.owners.set(r.name, false)
	r.leases.Refuse()
	if all {
		r.objects.Refuse()
	}
}

func (w *world) heal(r *remote) {
	w.note("%s: not cut off any more", r.name)
	w.OK(r.leases.Allow())
	w.OK(r.objects.Allow())
	r.able = true
	w.owners.set(r.name, true)
}

// silence makes the open connections of a replica to the API server carry nothing any more. It can
// open others, so it counts as able as long as it renews its session.
func (w *world) silence(r *remote) {
	w.note("%s: silence", r.name)
	r.able = false
	r.leases.Silence()
	r.objects.Silence()
}

func (w *world) endSilence(r *remote) {
	w.note("%s: no silence any more", r.name)
	r.leases.Cut()
	r.objects.Cut()
	r.able = true
}
