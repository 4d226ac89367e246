package main

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
)

// faultyDisk asks fault before each change whether the change must fail. A failed write leaves
// half a file.
type faultyDisk struct {
	disk
	fault atomic.Value // func(op, name string) error
	calls struct {
		sync.Mutex
		of map[string]int // by operation and name
	}
}

func newFaultyDisk(d disk, fault func(op, name string) error) *faultyDisk {
	f := &faultyDisk{disk: d}
	f.calls.of = map[string]int{}
	f.fault.Store(fault)
	return f
}

func (f *faultyDisk) heal() { f.fault.Store(func(string, string) error { return nil }) }

func (f *faultyDisk) try(op, name string) error {
	f.calls.Lock()
	f.calls.of[op+" "+name]++
	f.calls.Unlock()
	return f.fault.Load().(func(op, name string) error)(op, name)
}

func (f *faultyDisk) count(op, name string) int {
	f.calls.Lock()
	defer f.calls.Unlock()
	return f.calls.of[op+" "+name]
}

func (f *faultyDisk) WriteFile(name string, data []byte, perm fs.FileMode) error {
	if err := f.try("write", name); err != nil {
		return errors.Join(err, f.disk.WriteFile(name, data[:len(data)/2], perm))
	}
	return f.disk.WriteFile(name, data, perm)
}

func (f *faultyDisk) Rename(from, to string) error {
	if err := f.try("rename", to); err != nil {
		return err
	}
	return f.disk.Rename(from, to)
}

func (f *faultyDisk) Remove(name string) error {
	if err := f.try("remove", name); err != nil {
		return err
	}
	return f.disk.Remove(name)
}

// full makes every write fail.
func full(op, _ string) error {
	if op == "write" {
		return syscall.ENOSPC
	}
	return nil
}

func TestADirectoryFollowsTheCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		src := informertest.NewSource(object("a", "1"), object("b", "1"), object("a.json", "1"), object("a.tmp", "1"))
		mirrored(t, src, "", dir)
		check(t, dir, src)

		src.Apply(object("a", "2"))
		remove(t, src, "b")
		src.Apply(object("c.of.many.dots", "1"))
		other := object("a", "1")
		other.Namespace = "other"
		src.Apply(other)
		synctest.Wait()
		check(t, dir, src)

		remove(t, src, "a")
		src.Apply(object("a", "created again"))
		src.Apply(object("b", "created again"))
		remove(t, src, "c.of.many.dots")
		synctest.Wait()
		check(t, dir, src)
	})
}

func TestWritingAnObjectDoesNotChangeIt(t *testing.T) {
	shared := object("a", "1")
	if _, err := encode(shared); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(object("a", "1"), shared); diff != "" {
		t.Errorf("what the store holds has changed (-was +is):\n%s", diff)
	}
}

func TestARestartRemovesWhatHasGoneMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		src := informertest.NewSource(object("gone", "1"), object("again", "1"), object("kept", "1"))
		_, stop := mirrored(t, src, "", dir)
		stop()
		remove(t, src, "gone")
		remove(t, src, "again")
		src.Apply(object("again", "2"))
		put(t, dir, "default/never-was.json", "half a fi")
		put(t, dir, "default/torn.tmp", "half a fi") // as left by a crash before the rename

		said, _ := mirrored(t, src, "", dir)
		check(t, dir, src)
		if n := said.count("while nobody watched"); n != 3 {
			t.Errorf("said: %q", said.lines)
		}
	})
}

func TestWhatIsNotItsOwnIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		src := informertest.NewSource[configMap]()
		_, stop := mirrored(t, src, "", dir)
		stop()
		others := map[string]configMap{}
		for _, file := range []string{"README.json", "default/NOTES.json", "default/a.yaml", "default/deeper/a.json", "other/a.json"} {
			put(t, dir, file, "{}")
			others[file] = &corev1.ConfigMap{}
		}
		put(t, dir, "default/a.json", "{}")
		said, _ := mirrored(t, src, "default", dir)
		checkFiles(t, dir, others)
		if n := said.count("while nobody watched"); n != 1 {
			t.Errorf("said: %q", said.lines)
		}
	})
}

func TestNothingIsSweptBeforeTheClusterIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		src := informertest.NewSource(object("gone", "1"), object("kept", "1"))
		_, stop := mirrored(t, src, "", dir)
		stop()
		remove(t, src, "gone")
		src.Fail("list", syscall.ECONNREFUSED, -1)
		src.Fail("watch", syscall.ECONNREFUSED, -1)
		reg, _ := start(t, src, "", open(t, dir), &journal{})
		time.Sleep(10 * time.Minute)
		if n := len(files(t, dir)); n != 2 {
			t.Errorf("%d files are left, want 2", n)
		}
		src.Heal()
		<-reg.Synced()
		check(t, dir, src)
	})
}

func TestAFileWhoseFirstWriteFailsIsNotSwept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		src := informertest.NewSource(object("a", "old"))
		_, stop := mirrored(t, src, "", dir)
		stop()
		old := src.Objects()[0]
		old.APIVersion, old.Kind = "v1", "ConfigMap"
		src.Apply(object("a", "new"))

		d := newFaultyDisk(open(t, dir), full)
		said := &journal{}
		reg, stop := start(t, src, "", d, said)
		<-reg.Synced()
		time.Sleep(time.Minute)
		if err := os.Remove(filepath.Join(dir, "default/a.tmp")); err != nil {
			t.Error(err) // the half file of a failed write
		}
		checkFiles(t, dir, map[string]configMap{"default/a.json": old})
		d.heal()
		time.Sleep(time.Minute)
		check(t, dir, src)
		if n := said.count("no space"); n != 1 {
			t.Errorf("the failure was reported %d times: %q", n, said.lines)
		}
		stop()
	})
}

func TestAWriteThatHangsHoldsUpNoOtherObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		src := informertest.NewSource(object("a", "1"))
		release := make(chan struct{})
		d := newFaultyDisk(open(t, dir), func(_, name string) error {
			if strings.HasPrefix(name, "default/stuck") {
				<-release
			}
			return nil
		})
		reg, _ := start(t, src, "", d, &journal{})
		<-reg.Synced()
		src.Apply(object("stuck", "1"))
		synctest.Wait()
		src.Apply(object("stuck", "2"))
		src.Apply(object("a", "2"))
		src.Apply(object("b", "1"))
		synctest.Wait()
		if n := d.count("rename", "default/a.json") + d.count("rename", "default/b.json"); n != 3 {
			t.Errorf("meanwhile others were written %d times, want 3", n)
		}
		close(release)
		synctest.Wait()
		check(t, dir, src)
	})
}

// This disk is broken from the start: a file is where a directory should be.
func TestADiskThatHealsGetsTheNewestState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		root := open(t, dir)
		put(t, dir, "default", "in the way")
		src := informertest.NewSource(object("a", "0"), object("short-lived", "0"))
		d := newFaultyDisk(root, func(string, string) error { return nil })
		said := &journal{}
		reg, _ := start(t, src, "", d, said)
		<-reg.Synced()
		if n := said.count("file exists"); n != 2 {
			t.Errorf("reported: %q", said.lines)
		}
		for n := range 10 {
			src.Apply(object("a", fmt.Sprint("newer ", n)))
		}
		remove(t, src, "short-lived")
		time.Sleep(10 * time.Minute)
		if err := os.Remove(filepath.Join(dir, "default")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		check(t, dir, src)
		if n := d.count("write", "default/a.tmp"); n != 1 {
			t.Errorf("the file was written %d times, want the newest state alone", n)
		}
		if s := reg.Stats(); s.Pending != 0 || s.Failed != 0 {
			t.Errorf("in the end: %+v", s)
		}
	})
}

func TestWhatAFailedWriteHasLeftGoesWithItsObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		src := informertest.NewSource(object("a", "1"))
		reg, _ := start(t, src, "", newFaultyDisk(open(t, dir), full), &journal{})
		<-reg.Synced()
		remove(t, src, "a")
		time.Sleep(2 * time.Minute)
		check(t, dir, src)
	})
}

func TestASweepThatFailsIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		root := open(t, dir)
		put(t, dir, "default/stuck.json", "{}")
		put(t, dir, "default/well.json", "{}")
		src := informertest.NewSource(object("a", "1"))
		d := newFaultyDisk(root, func(op, name string) error {
			if op == "remove" && strings.HasPrefix(name, "default/stuck") {
				return syscall.EIO
			}
			return nil
		})
		said := &journal{}
		reg, _ := start(t, src, "", d, said)
		time.Sleep(10 * time.Minute)
		if reg.Stats().Synced {
			t.Error("synced, with a file that has no object")
		}
		if n := said.count("input/output error"); n != 1 {
			t.Errorf("reported: %q", said.lines)
		}
		if _, err := os.Stat(filepath.Join(dir, "default/well.json")); err == nil {
			t.Error("one file that cannot be removed keeps the others")
		}
		src.Apply(object("a", "2"))
		d.heal()
		<-reg.Synced()
		check(t, dir, src)
	})
}

func TestASweepThatFailsDoesNotHoldUpTheStopForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		root := open(t, dir)
		put(t, dir, "default/stuck.json", "{}")
		_, stop := start(t, informertest.NewSource[configMap](), "", newFaultyDisk(root, func(op, _ string) error {
			return syscall.EIO
		}), &journal{})
		time.Sleep(10 * time.Minute)
		begun := time.Now()
		stop()
		if took := time.Since(begun); took > 10*time.Second {
			t.Errorf("stopping took %v", took)
		}
	})
}

// The object is created right after the sweep has seen that it does not exist.
func TestAFileThatIsCreatedDuringTheSweepStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		root := open(t, dir)
		put(t, dir, "default/a.json", "{}")
		src := informertest.NewSource(object("b", "1"))
		d := newFaultyDisk(root, nil)
		d.fault.Store(func(op, name string) error {
			if op != "remove" || name != "default/a.json" {
				return nil
			}
			src.Apply(object("a", "1"))
			// The worker that would write the file waits for a mutex, which no test can wait
			// for. So the worker gets time to make the mistake.
			for range 10_000 {
				if runtime.Gosched(); d.count("rename", name) > 0 {
					break
				}
			}
			return nil
		})
		reg, _ := start(t, src, "", d, &journal{})
		<-reg.Synced()
		synctest.Wait()
		check(t, dir, src)
	})
}

func TestWhatWaitsIsWrittenBeforeTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		src := informertest.NewSource[configMap]()
		d := newFaultyDisk(open(t, dir), full)
		reg, stop := start(t, src, "", d, &journal{})
		<-reg.Synced()
		for n := range 100 {
			src.Apply(object(fmt.Sprint("o", n), ""))
		}
		time.Sleep(10*time.Minute + 30*time.Second) // in the middle of a pause of one minute
		d.heal()
		begun := time.Now()
		stop()
		if took := time.Since(begun); took > time.Second {
			t.Errorf("stopping took %v", took)
		}
		check(t, dir, src)
		if s := reg.Stats(); s.Delivered != 100 || s.Pending != 0 {
			t.Errorf("in the end: %+v", s)
		}
	})
}

func TestNamesThatAreNoFilesAreRefused(t *testing.T) {
	for key, want := range map[types.NamespacedName]string{
		{Namespace: "default", Name: "a.b"}:                    "default/a.b.json",
		{Namespace: "default", Name: strings.Repeat("a", 250)}: "default/" + strings.Repeat("a", 250) + ".json",
		{Namespace: "default", Name: strings.Repeat("a", 251)}: "",
		{Namespace: "..", Name: "a"}:                           "",
		{Namespace: "default", Name: ".."}:                     "",
		{Namespace: "default", Name: "../other/a"}:             "",
		{Namespace: "default", Name: "a/b"}:                    "",
		{Namespace: "default", Name: `a\b`}:                    "",
		{Namespace: "default", Name: "a\x00"}:                  "",
		{Namespace: "default", Name: ""}:                       "",
		{Namespace: "", Name: "a"}:                             "",
		{Namespace: "/etc", Name: "passwd"}:                    "",
	} {
		file, err := fileOf(key)
		if file != want || (err == nil) != (want != "") || want == "" && !errors.Is(err, informer.ErrPermanent) {
			t.Errorf("%q has the file %q, %v", key, file, err)
		}
		if back, ours := keyOf(file); want != "" && (!ours || back != key) {
			t.Errorf("%q is the file of %q, %v", file, back, ours)
		}
	}
}

func TestAnObjectThatWouldLeaveTheDirectoryIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parent := t.TempDir()
		dir := filepath.Join(parent, "mirror")
		hostile := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "..", Name: "evil"}}
		said, _ := mirrored(t, informertest.NewSource(hostile, object("a", "1")), "", dir)
		if said.count("given up") != 1 {
			t.Errorf("said: %q", said.lines)
		}
		if entries, err := os.ReadDir(parent); len(entries) != 1 {
			t.Errorf("beside the mirror: %v, %v", entries, err)
		}
	})
}

// Hundreds of objects come and go, the disk and the connection fail, and the program is
// restarted. In the end the directory must match the cluster.
func TestWhateverHappensTheDirectoryEndsTrue(t *testing.T) {
	for range 2 {
		seed := rand.Uint64() // differs each time; the test's name contains it
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testWhateverHappens(t, rand.New(rand.NewPCG(seed, 0))) })
		})
	}
}

func testWhateverHappens(t *testing.T, random *rand.Rand) {
	dir := t.TempDir()
	src := informertest.NewSource[configMap]()
	failures := map[string]int{}
	for life := range 3 {
		var mu sync.Mutex
		dice := rand.New(rand.NewPCG(random.Uint64(), 0))
		d := newFaultyDisk(open(t, dir), func(op, _ string) error {
			mu.Lock()
			defer mu.Unlock()
			if dice.IntN(4) > 0 {
				return nil
			}
			failures[op]++
			return syscall.EIO
		})
		reg, stop := start(t, src, "", d, &journal{})
		for range 500 {
			happen(src, random)
		}
		if life < 2 {
			stop() // while it is working
			for range 100 {
				happen(src, random)
			}
			continue
		}
		d.heal()
		src.Heal()
		<-reg.Synced()
		time.Sleep(5 * time.Minute)
		check(t, dir, src)
		if s := reg.Stats(); s.Pending != 0 || s.Failed != 0 || s.Retried == 0 {
			t.Errorf("in the end: %+v", s)
		}
		stop()
	}
	if ops := len(failures); ops != 3 {
		t.Errorf("of three operations these have failed: %v", failures)
	}
}

// happen makes one thing happen to the source, or lets time pass.
func happen(src *source, random *rand.Rand) {
	name := fmt.Sprint("o", random.IntN(300))
	switch n := random.IntN(100); {
	case n < 60:
		src.Apply(object(name, fmt.Sprint(random.Uint32())))
	case n < 85:
		_, _ = src.Delete(types.NamespacedName{Namespace: "default", Name: name})
	case n < 95:
		time.Sleep(time.Duration(random.IntN(1000)) * time.Millisecond)
	case n < 97:
		src.Disconnect()
	case n < 98:
		src.Expire()
	default:
		src.SetFaults(informertest.Faults{Mute: n == 98})
	}
}
