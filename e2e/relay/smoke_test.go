package relay_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestAgentsReadFromTheRelayAlone(t *testing.T) {
	w := newWorld(t)
	w.create(100)
	r := w.relay(w.front.config(), "", nil)
	var agents []*agent
	for i := range 10 {
		agents = append(agents, w.agent(r.config, fmt.Sprint("agent", i)))
	}
	for i := range 50 {
		patch := fmt.Appendf(nil, `{"metadata":{"labels":{"changed":"%d"}}}`, i)
		_, err := w.leases.Patch(t.Context(), fmt.Sprint("l", i), types.MergePatchType, patch, metav1.PatchOptions{})
		w.ok(err)
	}
	w.ok(w.leases.Delete(t.Context(), "l99", metav1.DeleteOptions{}))
	list, err := w.leases.List(t.Context(), metav1.ListOptions{Limit: 1})
	w.ok(err)
	for _, a := range agents {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		w.ok(a.WaitForSync(ctx))
		w.await("an agent misses changes", func() bool { return a.Health().Objects == 99 })
		cancel()
	}
	t.Logf("the API server is at version %s, and was asked for %v", list.ResourceVersion, w.front.asked(0))
	if asked := w.front.asked(0); !slices.Equal(asked, []string{"leases: stream"}) {
		t.Errorf("the API server was asked for %v, want one stream", asked)
	}
}
