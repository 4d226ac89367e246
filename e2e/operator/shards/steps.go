package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"
)

// step is one step of the demo: its description and its function.
type step struct {
	what string
	do   func(ctx context.Context, w *world) error
}

// steps are all steps. Websites are made all the while.
var steps = []step{
	{"Three replicas start: A, B and C. A hundred Websites are made at once, and then ten each second to the end.", start},
	{"A fourth replica joins: D. Then all Websites get other hosts.", join},
	{"Two replicas are asked to stop: A and B.", leave},
	{"C is killed, and replaced by E at once. Its session ends 15 s after its last renewal.", kill},
	{"D is paused (SIGSTOP) until E has all buckets. Then all Websites get other hosts, and D continues (SIGCONT).", pause},
	{"No more Websites are made, and the replicas are asked to stop.", finish},
}

// quick are the steps that need not wait until a session ends.
var quick = []step{steps[0], steps[1], steps[2], steps[5]}

func start(ctx context.Context, w *world) error {
	begun := time.Now()
	for _, name := range []string{"A", "B", "C"} {
		if err := w.start(ctx, name); err != nil {
			return err
		}
	}
	took, err := w.balanced(ctx, begun, "A", "B", "C")
	if err != nil {
		return err
	}
	w.say("after %v, the 64 buckets are divided: %s", took, w.division())
	return w.report(ctx)
}

// report waits until all Websites are settled, and prints how long the slowest waited.
func (w *world) report(ctx context.Context) error {
	n, err := w.settle(ctx)
	if err == nil {
		w.say("all %d Websites that there are have their Ingress and their status; none waited for longer than %v", n, w.waited())
	}
	return err
}

func join(ctx context.Context, w *world) error {
	before := w.owners()
	if err := w.start(ctx, "D"); err != nil {
		return err
	}
	took, err := w.balanced(ctx, time.Now(), "A", "B", "C", "D")
	if err != nil {
		return err
	}
	w.say("%v after D has joined, it has its part: %s", took, w.division())
	moved := w.moved(before)
	w.say("%d buckets have moved, the others have stayed where they were", moved)
	if moved != buckets/4 {
		return fmt.Errorf("%d buckets have moved, want the 16 of the new replica", moved)
	}
	begun := time.Now()
	n, err := w.move(ctx, "new.")
	if err != nil {
		return err
	}
	if err := w.report(ctx); err != nil {
		return err
	}
	w.say("%d of them have got other hosts, which took %v", n, time.Since(begun).Round(time.Millisecond))
	var parts []string
	for _, name := range []string{"A", "B", "C", "D"} {
		r := w.replicas[name]
		if r.created() == 0 && name != "D" { // by chance once in 10^17 times
			return fmt.Errorf("%s has created no Ingress", name)
		}
		parts = append(parts, fmt.Sprintf("%s has created %d", name, r.created()))
	}
	w.say("of the Ingresses, %s", strings.Join(parts, ", "))
	return nil
}

func leave(ctx context.Context, w *world) error {
	begun := time.Now()
	stopped := make(chan error)
	for _, name := range []string{"A", "B"} {
		r := w.replicas[name]
		delete(w.replicas, name)
		go func() { stopped <- r.Stop(ctx) }()
	}
	err := errors.Join(<-stopped, <-stopped)
	ended := time.Since(begun).Round(time.Millisecond)
	if err != nil {
		return err
	}
	took, err := w.balanced(ctx, begun, "C", "D")
	if err != nil {
		return err
	}
	w.say("both exited after %v, and after %v the others have their buckets: %s", ended, took, w.division())
	return w.report(ctx)
}

func kill(ctx context.Context, w *world) error {
	begun := time.Now()
	w.replicas["C"].Kill()
	delete(w.replicas, "C")
	if err := w.start(ctx, "E"); err != nil {
		return err
	}
	w.say("E has joined after %v: %s", time.Since(begun).Round(time.Millisecond), w.division())
	took, err := w.balanced(ctx, begun, "D", "E")
	if err != nil {
		return err
	}
	w.say("%v after the death of C, its buckets have owners again: %s", took, w.division())
	return w.report(ctx)
}

func pause(ctx context.Context, w *world) error {
	d, known := w.replicas["D"], w.sessions()
	begun := time.Now()
	if err := d.Pause(ctx); err != nil {
		return err
	}
	took, err := w.balanced(ctx, begun, "E")
	if err != nil {
		return err
	}
	w.say("%v after D has been paused, E has all buckets", took)
	n, err := w.move(ctx, "other.")
	if err != nil {
		return err
	}
	if err := w.report(ctx); err != nil {
		return err
	}
	w.say("%d of them have got other hosts. D has not seen any of that", n)
	d.waking.Store(true)
	begun = time.Now()
	if err := d.Signal(syscall.SIGCONT); err != nil {
		return err
	}
	if err := w.joined(ctx, d, known); err != nil {
		return err
	}
	took, err = w.balanced(ctx, begun, "D", "E")
	if err != nil {
		return err
	}
	w.say("%v after D continues, it has joined with a new session and has its part: %s", took, w.division())
	const workers = 4 // the default of the operator
	strays := d.strays.Load()
	w.say("before that, it has made %d writes to Websites and Ingresses", strays)
	if strays > workers { // each call that was under way may have been just before its request
		return fmt.Errorf("D has made %d writes that belong to E's buckets", strays)
	}
	return w.report(ctx)
}

func finish(ctx context.Context, w *world) error {
	if err := w.stopMaking(); err != nil {
		return err
	}
	n, err := w.settle(ctx)
	if err != nil {
		return err
	}
	ingresses := w.Ingresses.Health().Objects
	w.say("there are %d Websites and %d Ingresses. Each Website has its Ingress, and each status is that of the newest state", n, ingresses)
	if ingresses != n {
		return fmt.Errorf("there are %d Ingresses for %d Websites", ingresses, n)
	}
	for name, r := range w.replicas {
		delete(w.replicas, name)
		if err := r.Stop(ctx); err != nil {
			return err
		}
	}
	created, refused := 0, 0
	for _, r := range w.all {
		created += r.created()
		refused += r.front.Calls().Refused()
	}
	w.say("the replicas have created %d Ingresses. The API server has refused %d of their writes, as conflicts or because another came first", created, refused)
	err = w.until(ctx, "buckets have owners although all replicas have stopped", func() bool {
		free := 0
		for _, id := range w.owners() {
			if id == "" {
				free++
			}
		}
		return free == buckets && len(w.sessions()) == 0
	})
	w.say("of the Leases, those of the 64 buckets are left, without owners")
	return err
}
