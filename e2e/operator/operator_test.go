package main

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/customcacheinformer/informer/e2e/operator/internal/cluster"
)

func TestManyConvergeInNoMoreWritesThanItTakes(t *testing.T) {
	ctx, w := begin(t)
	n := sized(200)
	if err := w.converge(ctx, names(n)...); err != nil {
		t.Fatal(err)
	}
	if err := w.operator.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	// Refused writes, which were based on outdated objects, are not counted here.
	want := cluster.Calls{
		{Verb: http.MethodPost, Resource: "ingresses", Code: http.StatusCreated}: n,
		{Verb: http.MethodPut, Resource: "websites/status", Code: http.StatusOK}: 2 * n,
		{Verb: http.MethodPut, Resource: "ingresses", Code: http.StatusOK}:       0,
	}
	for call, times := range want {
		// The informers may show the effect of a write before its answer is counted.
		err := wait.PollUntilContextCancel(ctx, time.Millisecond, true, func(context.Context) (bool, error) {
			return w.front.Calls()[call] >= times, nil
		})
		if got := w.front.Calls()[call]; got != times || err != nil {
			t.Errorf("%+v: %d times, want %d", call, got, times)
		}
	}
}

func TestADeletedIngressComesBack(t *testing.T) {
	ctx, w := begin(t)
	if err := w.converge(ctx, "shop"); err != nil {
		t.Fatal(err)
	}
	if err := w.recreate(ctx, "shop"); err != nil {
		t.Error(err)
	}
}

func TestWorkThatACrashLeavesUndoneIsDoneAfterIt(t *testing.T) {
	ctx, w := begin(t)
	n := sized(200)
	done, err := w.crash(ctx, names(n))
	if err != nil {
		t.Fatal(err)
	}
	if done >= n {
		t.Errorf("all %d Ingresses were there at the crash, so nothing was left undone", done)
	}
}

func TestStoppingInTheMiddleIsQuickAndLosesNothing(t *testing.T) {
	ctx, w := begin(t)
	took, err := w.interrupt(ctx, names(50))
	if err != nil {
		t.Fatal(err)
	}
	if took > time.Minute {
		t.Errorf("stopping took %v", took)
	}
}

func TestConflictsOverwriteNothing(t *testing.T) {
	ctx, w := begin(t)
	n := sized(50)
	if err := w.CreateSites(ctx, w.keys(names(n))); err != nil {
		t.Fatal(err)
	}
	if err := w.allSettled(ctx, names(n), "Pending"); err != nil {
		t.Fatal(err)
	}
	refused, err := w.conflict(ctx, names(n))
	if err != nil {
		t.Fatal(err)
	}
	if refused < 3*n {
		t.Errorf("%d writes were refused, want two of each Website and one of its Ingress", refused)
	}
}

func TestAWebsiteIsTakenDownWhenItExpires(t *testing.T) {
	ctx, w := begin(t)
	if err := w.converge(ctx, "shop"); err != nil {
		t.Fatal(err)
	}
	if err := w.expire(ctx, "shop"); err != nil {
		t.Error(err)
	}
}

func TestTheDemo(t *testing.T) {
	if testing.Short() {
		t.Skip("plays the scenarios of the other tests again: make soak")
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	w, err := newWorld(shared, program, "demo")
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	var out strings.Builder
	if err := show(ctx, w, &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"shoes    Pending", "all 200 Websites have theirs", "books    Expired             no Ingress"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the demo does not print %q:\n%s", want, &out)
		}
	}
}
