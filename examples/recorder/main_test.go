package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
)

func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1] // see informertest.Main
	klog.SetLogger(klog.Logger{})
	goleak.VerifyTestMain(m)
}

type source = informertest.Source[configMap]

// object returns a ConfigMap of the namespace "default" that holds value.
func object(name, value string) configMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Data:       map[string]string{"value": value},
	}
}

func remove(t *testing.T, src *source, name string) {
	t.Helper()
	if _, err := src.Delete(types.NamespacedName{Namespace: "default", Name: name}); err != nil {
		t.Fatal(err)
	}
}

// open opens dir as a mirror's disk until the end of the test.
func open(t *testing.T, dir string) *os.Root {
	t.Helper()
	root, err := openDisk(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	return root
}

// journal collects the log lines of a mirror.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) log(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf(format, args...))
}

// count returns the number of lines that contain part.
func (j *journal) count(part string) (n int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, line := range j.lines {
		if strings.Contains(line, part) {
			n++
		}
	}
	return n
}

// start makes a mirror follow src, and does not wait for it to sync. It returns the mirror's
// registration, and a function that stops the mirror and waits. The end of the test calls this
// function too.
func start(t *testing.T, src *source, namespace string, d disk, said *journal) (reg *informer.Registration, stop func()) {
	t.Helper()
	inf, reg, err := follow(src, namespace, d, said.log)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- inf.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return reg, stop
}

// mirrored makes a mirror follow src into dir. It waits until the mirror has synced and every
// goroutine is blocked.
func mirrored(t *testing.T, src *source, namespace, dir string) (said *journal, stop func()) {
	t.Helper()
	said = &journal{}
	reg, stop := start(t, src, namespace, open(t, dir), said)
	<-reg.Synced()
	synctest.Wait()
	return said, stop
}

// put writes a file without the mirror's knowledge.
func put(t *testing.T, dir, file, content string) {
	t.Helper()
	file = filepath.Join(dir, file)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// files returns the files of dir, without the marker.
func files(t *testing.T, dir string) map[string]configMap {
	t.Helper()
	found := map[string]configMap{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || file == marker {
			return err
		}
		data, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			return err
		}
		obj := &corev1.ConfigMap{}
		if err := json.Unmarshal(data, obj); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		found[file] = obj
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// checkFiles fails the test unless dir holds exactly these files.
func checkFiles(t *testing.T, dir string, want map[string]configMap) {
	t.Helper()
	if diff := cmp.Diff(want, files(t, dir)); diff != "" {
		t.Errorf("in the directory (-want +got):\n%s", diff)
	}
}

// check fails the test unless dir holds exactly the objects of src.
func check(t *testing.T, dir string, src *source) {
	t.Helper()
	want := map[string]configMap{}
	for _, obj := range src.Objects() {
		obj.APIVersion, obj.Kind = "v1", "ConfigMap"
		want[obj.Namespace+"/"+obj.Name+".json"] = obj
	}
	checkFiles(t, dir, want)
}

func TestTheFakeClusterIsMirrored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		said := &journal{}
		begun := time.Now()
		for range 2 { // first into a new directory, then into the same one
			if err := run(t.Context(), said.log, dir, "", "team-a", 30*time.Second); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(begun); took != time.Minute {
			t.Errorf("it took %v", took)
		}
		want, events := map[string]bool{}, 0
		for _, line := range said.lines {
			if what, key, _ := strings.Cut(line, " "); strings.Contains(key, "team-a/") {
				events++
				name, _, _ := strings.Cut(strings.TrimSpace(key), ",")
				if want[name+".json"] = true; what == "deleted" {
					delete(want, name+".json")
				}
			}
		}
		got := map[string]bool{}
		for file := range files(t, dir) {
			got[file] = true
		}
		if diff := cmp.Diff(want, got); diff != "" || events < 100 {
			t.Errorf("after %d events there are (-want +got):\n%s", events, diff)
		}
	})
}

func TestADirectoryThatHoldsSomethingElseIsRefused(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "project/package.json", "precious")
	if err := run(t.Context(), (&journal{}).log, dir, "", "", time.Second); err == nil || !strings.Contains(err.Error(), "not a mirror") {
		t.Errorf("error %v", err)
	}
	if data, err := os.ReadFile(filepath.Join(dir, "project/package.json")); string(data) != "precious" {
		t.Errorf("left are %q, %v", data, err)
	}
}
