//go:build unix

package disk_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/sample"
	"github.com/customcacheinformer/informer/store/disk"
)

func TestAFullDiskIsAnErrorAndHeals(t *testing.T) {
	if !alone(t) {
		return
	}
	for name, durability := range map[string]disk.Durability{"power loss": disk.SurvivePowerLoss, "process": disk.SurviveProcess} {
		t.Run(name, func(t *testing.T) {
			path := newPath(t)
			s := open(t, path, sample.ConfigMap("", ""), disk.Options{Durability: durability, Indexers: versionIndexer})
			h, failed := newHistory(), 0
			size := int64(20 * disk.PageSize)
			steps := 30
			if !*thorough {
				steps = 12
			}
			for range steps {
				before := contents(t, s)
				unlimit := limitFiles(t, size)
				changes := h.next()
				err := s.Apply(t.Context(), changes, h.bookmark())
				for range 3 {
					if err == nil {
						break
					}
					failed++
					if !errors.Is(err, syscall.EFBIG) && !strings.Contains(err.Error(), syscall.EFBIG.Error()) || errors.Is(err, informer.ErrPermanent) {
						t.Fatalf("on a full disk Apply returned: %v", err)
					}
					if now := contents(t, s); !slices.Equal(before, now) {
						t.Fatalf("an Apply that has failed has done something: %s", cut(cmp.Diff(before, now)))
					}
					err = s.Apply(t.Context(), changes, h.bookmark())
				}
				unlimit()
				if err != nil {
					size += int64(disk.PageSize) * 7
					if err = s.Apply(t.Context(), changes, h.bookmark()); err != nil {
						t.Fatalf("when there is room again: %v", err)
					}
				}
				if now := contents(t, s); !slices.Equal(h.contents(), now) {
					t.Fatalf("after step %d: %s", h.step, cut(cmp.Diff(h.contents(), now)))
				}
			}
			if failed == 0 {
				t.Error("the disk was never full")
			}
			copied := open(t, crashed(t, path), sample.ConfigMap("", ""), disk.Options{Indexers: versionIndexer})
			if now := contents(t, copied); !slices.Equal(h.contents(), now) {
				t.Errorf("opened after it was full: %s", cut(cmp.Diff(h.contents(), now)))
			}
		})
	}
}

func TestNoFileIsBegunOnAFullDisk(t *testing.T) {
	if !alone(t) {
		return
	}
	path := newPath(t)
	for _, size := range []int64{0, 100, disk.PageSize, 5 * disk.PageSize} {
		unlimit := limitFiles(t, size)
		_, err := tryOpen(t, path, sample.ConfigMap("", ""), disk.Options{ErrorHandler: func(error) {}})
		unlimit()
		if err == nil || errors.Is(err, disk.ErrDamaged) {
			t.Errorf("with room for %d bytes: %v, want the error of the operating system", size, err)
		}
	}
	if _, err := tryOpen(t, path, sample.ConfigMap("", ""), disk.Options{ErrorHandler: func(error) {}}); err != nil {
		t.Errorf("when there is room: %v", err)
	}
}

func TestAnInformerSurvivesAFullDisk(t *testing.T) {
	if !alone(t) {
		return
	}
	path := newPath(t)
	s := open(t, path, sample.ConfigMap("", ""), disk.Options{})
	src := informertest.NewSource[*corev1.ConfigMap]()
	failures := make(chan error, 1000)
	inf, err := informer.NewFrom(src, informer.Options[*corev1.ConfigMap]{Durable: s, ErrorHandler: func(_ context.Context, err error) { failures <- err }})
	must(t, err)
	var seen informertest.Recorder[*corev1.ConfigMap]
	_, err = inf.AddWatcher(&seen, informer.WatcherOptions{})
	must(t, err)
	stop := informertest.Run(t, inf)
	info, err := os.Stat(path)
	must(t, err)
	unlimit := limitFiles(t, info.Size())
	large := sample.ConfigMap("default", "large").(*corev1.ConfigMap)
	large.Data["more"] = strings.Repeat("x", 1<<20)
	src.Apply(large)
	src.Apply(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "small"}})
	var storeErr *informer.StoreError
	if err := <-failures; !errors.As(err, &storeErr) || storeErr.Op != "apply" {
		t.Errorf("reported: %v, want that Apply has failed", err)
	}
	if health := inf.Health(); !errors.As(health.StoreError, &storeErr) || !strings.Contains(health.StoreError.Error(), syscall.EFBIG.Error()) {
		t.Errorf("Health says %v", health.StoreError)
	}
	unlimit()
	seen.Expect(t, "added default/large", "added default/small")
	stop()
	if all := stored(t, s); len(all) != 2 {
		t.Errorf("stored: %v", all)
	}
}

// aloneVariable is set for a process that runs a single test.
const aloneVariable = "DISK_TEST_ALONE"

// alone reports whether the process runs this test alone. If not, alone runs the test in
// another process, because a limit applies to all files of a process, also to those of the
// test runner.
func alone(t *testing.T) bool {
	t.Helper()
	if os.Getenv(aloneVariable) != "" {
		return true
	}
	program, err := os.Executable()
	must(t, err)
	cmd := exec.Command(program, "-test.run=^"+t.Name()+"$", "-thorough="+strconv.FormatBool(*thorough))
	cmd.Env = append(os.Environ(), aloneVariable+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	return false
}

// limitFiles simulates a full disk: no file of this process can become larger than size. The
// returned function removes the limit.
func limitFiles(t *testing.T, size int64) (unlimit func()) {
	t.Helper()
	var before syscall.Rlimit
	must(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &before))
	limit := before
	limit.Cur = uint64(size)
	must(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit))
	unlimit = func() { noError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &before)) }
	t.Cleanup(unlimit)
	return unlimit
}
