package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/customcacheinformer/informer/examples/operator/website"
)

// step is one step of the demo: its description and its function.
type step struct {
	what string
	do   func(ctx context.Context, w *world, out io.Writer) error
}

var steps = []step{
	{"Three Websites are created. Each gets an Ingress, the Ingress an address, and the Website a status.", showConverge},
	{"An Ingress is deleted by hand. It comes back.", showRecreate},
	{"200 Websites are created. The operator is killed in the middle, and started again.", showCrash},
	{"100 Websites get other hosts, then addresses. Another client changes each object just before the operator first writes it.", showConflict},
	{"A Website expires. It is taken down when the time comes.", showExpire},
	{"The operator is asked to stop.", showStop},
}

func showConverge(ctx context.Context, w *world, out io.Writer) error {
	shops := []string{"books", "flowers", "shoes"}
	if err := w.converge(ctx, shops...); err != nil {
		return err
	}
	for _, name := range shops {
		w.show(out, name)
	}
	return nil
}

func showRecreate(ctx context.Context, w *world, out io.Writer) error {
	if err := w.recreate(ctx, "shoes"); err != nil {
		return err
	}
	w.show(out, "shoes")
	return nil
}

func showCrash(ctx context.Context, w *world, out io.Writer) error {
	done, err := w.crash(ctx, names(200))
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "   when it was killed there were %d Ingresses; one of them was deleted before the restart\n"+
		"   after the restart all 200 Websites have theirs\n", done)
	return nil
}

func showConflict(ctx context.Context, w *world, out io.Writer) error {
	refused, err := w.conflict(ctx, names(100))
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "   the API server refused %d writes as conflicts; all 100 Websites and their Ingresses\n", refused)
	fmt.Fprintf(out, "   have the new hosts and the annotations of the others\n")
	return nil
}

func showExpire(ctx context.Context, w *world, out io.Writer) error {
	if err := w.expire(ctx, "books"); err != nil {
		return err
	}
	w.show(out, "books")
	return nil
}

func showStop(ctx context.Context, w *world, out io.Writer) error {
	begun := time.Now()
	if err := w.operator.Stop(ctx); err != nil {
		return err
	}
	calls := w.front.Calls()
	fmt.Fprintf(out, "   it took %v; altogether it made %d writes\n", time.Since(begun).Round(time.Millisecond), calls.Writes())
	return nil
}

// show prints a Website and the host of its Ingress.
func (w *world) show(out io.Writer, name string) {
	site, exists, err := w.Websites.Get(w.key(name))
	if err != nil || !exists {
		site = &website.Website{}
	}
	ingress := "no Ingress"
	if found, exists, err := w.Ingresses.Get(w.key(name)); err == nil && exists {
		ingress = "Ingress for " + found.Spec.Rules[0].Host
	}
	fmt.Fprintf(out, "   %-8s %-8s %-10s %s\n", name, site.Status.Phase, site.Status.Address, ingress)
}
