package demo

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
)

func TestMain(m *testing.M) { informertest.Main(m) }

func TestTheThreeWatchersEndEqualToTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := func(n, generation int) *corev1.Pod {
			return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("p", n), Generation: int64(generation)}}
		}
		src := informertest.NewSource(pod(1, 1), pod(2, 1))
		inf, err := informer.NewFrom(src, informer.Options[*corev1.Pod]{})
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for i := range 40 {
				time.Sleep(90 * time.Millisecond)
				src.Apply(pod(i%5, i))
			}
		}()
		var out bytes.Buffer
		if err := Run(t.Context(), &out, &informer.Group{}, inf, 4*time.Second); err != nil {
			t.Error(err)
		}
		if got := strings.Count(out.String(), " equal\n"); got != 3 {
			t.Errorf("%d of 3 watchers are equal:\n%s", got, out.String())
		}
		if !strings.Contains(out.String(), "late   has seen the initial state: 5 objects") {
			t.Errorf("the late watcher did not see the state of its time:\n%s", out.String())
		}
	})
}

func TestAnInformerThatDoesNotSyncIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource[*corev1.Pod]()
		src.Fail(informertest.VerbWatch, context.DeadlineExceeded, -1)
		src.Fail(informertest.VerbList, context.DeadlineExceeded, -1)
		inf, err := informer.NewFrom(src, informer.Options[*corev1.Pod]{ErrorHandler: func(context.Context, error) {}})
		if err != nil {
			t.Fatal(err)
		}
		if err := Run(t.Context(), &bytes.Buffer{}, &informer.Group{}, inf, time.Second); err == nil {
			t.Error("no error")
		}
	})
}
