package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
)

func TestOnlyAViewThatHasAllObjectsOfTheStoreIsEqual(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
		inf, _ := informertest.Start(t, pod)
		complete, empty, old := newView("complete"), newView("empty"), newView("old")
		old.see(informer.Event[*corev1.Pod]{Type: informer.EventAdded, New: pod.DeepCopy()})
		reg, err := inf.AddWatcher(informer.WatcherFunc[*corev1.Pod](func(_ context.Context, e informer.Event[*corev1.Pod]) error {
			complete.see(e)
			return nil
		}), informer.WatcherOptions{})
		if err != nil {
			t.Fatal(err)
		}
		<-reg.Synced()
		var out bytes.Buffer
		if err := compare(t.Context(), &out, inf, complete); err != nil || complete.size() != 1 {
			t.Errorf("%v:\n%s", err, out.String())
		}
		for _, view := range []*view{empty, old} {
			out.Reset()
			if err := compare(t.Context(), &out, inf, view, complete); err == nil || strings.Count(out.String(), "DIFFERENT") != 1 {
				t.Errorf("%s: %v:\n%s", view.name, err, out.String())
			}
		}
	})
}
