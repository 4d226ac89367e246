package main

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/customcacheinformer/informer/e2e/apiserver"
)

func TestMain(m *testing.M) {
	roles.Play()
	os.Exit(apiserver.ExitCode(m.Run()))
}

func TestTheTableHasEachRowAndAllEventsAreDelivered(t *testing.T) {
	var out strings.Builder
	p := plan{objects: 50, connections: 4, watchers: []int{0, 20}, writes: 20, during: time.Second, rounds: 1}
	if !testing.Short() {
		p.objects, p.rounds = 400, 3
	}
	if err := p.run(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| 0 | API server | 0 |", "| 0 | relay | 1 |", "| 20 | API server | 20 |", "| 20 | relay | 1 |",
		"| 400 of 400 |", "| API server | ", "| relay | ",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing", want)
		}
	}
	t.Log("\n" + out.String())
}

func TestMoreBytesForMoreWatchersOfARelayAreAnError(t *testing.T) {
	for many, wrong := range map[float64]bool{1000: false, 2000: true} {
		found := results{{1, relayed}: {{upstream: 1000}}, {2, relayed}: {{upstream: many}}}
		if err := found.upstreamIsConstant([]int{1, 2}); (err != nil) != wrong {
			t.Errorf("%.0f bytes: %v", many, err)
		}
	}
}

func TestAChangeOutOfOrderIsAnError(t *testing.T) {
	a := &agents{}
	for _, wrong := range []string{"1 0", "3 0", ""} {
		if _, err := a.note(podWith(wrong), 1); err == nil {
			t.Errorf("%q after change 1 is no error", wrong)
		}
	}
	if last, err := a.note(podWith("2 0"), 1); err != nil || last != 2 {
		t.Errorf("got %d, %v", last, err)
	}
	a.fail(errors.New("a watch has ended"))
	if _, err := a.got(); err == nil {
		t.Error("the error of a watcher is not told")
	}
}

// podWith returns a Pod that a write has changed.
func podWith(tick string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{annotation: tick}}}
}
