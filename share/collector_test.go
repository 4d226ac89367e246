package share_test

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"weak"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/customcacheinformer/informer/share"
)

// pod returns a Pod of an app that is decoded from its wire form, so that it shares nothing.
func pod(t *testing.T, app, name string) *corev1.Pod {
	t.Helper()
	made := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": app, "tier": "web"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "main", Image: "registry.example/" + app, Args: []string{"--app", app},
			Resources:       corev1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": resource.MustParse("500m")}},
			SecurityContext: &corev1.SecurityContext{Privileged: new(bool)},
		}}},
	}
	wire, err := made.Marshal()
	if err != nil {
		t.Error(err)
	}
	decoded := new(corev1.Pod)
	if err := decoded.Unmarshal(wire); err != nil {
		t.Error(err)
	}
	return decoded
}

// collectUntil runs the garbage collector until done reports true, and returns whether it has.
func collectUntil(done func() bool) bool {
	for range 1_000 {
		if runtime.GC(); done() {
			return true
		}
		runtime.Gosched()
	}
	return false
}

func TestATableGetsSmallByItself(t *testing.T) {
	table := share.New()
	var kept []*corev1.Pod
	for i := range 2_000 {
		kept = append(kept, pod(t, fmt.Sprint("app", i), fmt.Sprint("pod", i)))
		table.Share(kept[i])
	}
	if n := table.Stats().Parts; n < 1_000 {
		t.Fatalf("the table has %d parts", n)
	}
	clear(kept)
	if !collectUntil(func() bool { s := table.Stats(); return s.Parts < 100 && s.TableBytes < 64<<10 }) {
		t.Errorf("all objects are dropped, and the table still has %+v", table.Stats())
	}
}

func TestPartsOfLiveObjectsStayInTheTable(t *testing.T) {
	table := share.New()
	kept := pod(t, "app", "a")
	table.Share(kept)
	for range 5 {
		runtime.GC()
	}
	other := pod(t, "app", "b")
	table.Share(other)
	if kept.Spec.Containers[0].SecurityContext != other.Spec.Containers[0].SecurityContext {
		t.Error("the table has forgotten a part that is in use")
	}
}

func TestATableThatNobodyHasIsCollected(t *testing.T) {
	var tables []weak.Pointer[share.Table]
	for range 10 {
		table := share.New()
		table.Share(pod(t, "app", "a"))
		tables = append(tables, weak.Make(table))
	}
	there := func(table weak.Pointer[share.Table]) bool { return table.Value() != nil }
	if !collectUntil(func() bool { return !slices.ContainsFunc(tables, there) }) {
		t.Error("a table is still there")
	}
}

func TestObjectsStayEqualWhileTheCollectorRuns(t *testing.T) {
	table, done := share.New(), make(chan struct{})
	var workers, collector sync.WaitGroup
	collector.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				runtime.GC()
			}
		}
	})
	rounds := 2_000
	if testing.Short() {
		rounds = 200
	}
	for worker := range 4 {
		workers.Go(func() {
			var live [16]pair
			for i := range rounds {
				at := &live[i%len(live)]
				next := pod(t, fmt.Sprint("app", i%3), fmt.Sprint("pod", worker, i))
				p := pair{next, next.DeepCopyObject()}
				if i%2 == 0 || at.obj == nil {
					table.Share(next)
				} else {
					table.ShareUpdate(at.obj, next)
				}
				*at = p
				for _, p := range live {
					if p.obj != nil {
						p.check(t)
					}
				}
			}
		})
	}
	workers.Wait()
	close(done)
	collector.Wait()
	if s := table.Stats(); s.Hits == 0 {
		t.Errorf("nothing was shared: %+v", s)
	}
}

// TestFreedMemoryIsNotUsed runs other tests again in a process whose garbage collector overwrites
// memory that it frees, and checks its own marks.
func TestFreedMemoryIsNotUsed(t *testing.T) {
	const variable = "SHARE_TEST_CLOBBER"
	if os.Getenv(variable) != "" {
		t.Skip("this is the process")
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.short",
		"-test.run=^(TestObjectsStayEqualWhileTheCollectorRuns|TestEqualValuesOfEachKind)$")
	cmd.Env = append(os.Environ(), variable+"=1", "GOGC=1", "GODEBUG=clobberfree=1,gccheckmark=1")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "PASS") {
		t.Errorf("%v:\n%s", err, out)
	}
}
