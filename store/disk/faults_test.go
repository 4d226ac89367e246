package disk_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/sample"
	"github.com/customcacheinformer/informer/store"
	"github.com/customcacheinformer/informer/store/disk"
)

// Many pages become empty at once. In the same transaction, bbolt's cursors loop forever in
// them.
func TestManyDeletesInOneStep(t *testing.T) {
	s := open(t, newPath(t), sample.ConfigMap("", ""), disk.Options{Durability: disk.SurviveProcess, Indexers: versionIndexer})
	for _, name := range []string{"other", "zzz"} {
		var many, few []informer.Change
		for n := range 300 {
			obj := newSized(fmt.Sprintf("o-%03d", n), 1, 1000)
			many, few = append(many, adding(obj)), append(few, deleting(obj))
		}
		few = append(few, adding(newSized(name, 2, 10)))
		must(t, errors.Join(s.Apply(t.Context(), many, ""), s.Apply(t.Context(), few, "")))
		if all := stored(t, s); all[len(all)-1].Object.GetName() != name || len(all) > 2 {
			t.Errorf("there are %d objects, want the new ones", len(all))
		}
	}
}

// A process that opens a file that is being written must not take it for damaged, even if it
// uses another name for the file, or if the lock file was removed.
func TestAFileInUseIsNotSetAside(t *testing.T) {
	path := newPath(t)
	link := filepath.Join(t.TempDir(), "link.db")
	s := open(t, path, sample.ConfigMap("", ""), disk.Options{})
	must(t, add(s, newSized("a", 1, 1)))
	must(t, errors.Join(os.Link(path, link), os.Remove(path+".lock")))
	for _, name := range []string{path, link} {
		if _, err := tryOpen(t, name, sample.ConfigMap("", ""), disk.Options{}); !errors.Is(err, disk.ErrInUse) {
			t.Errorf("Open of %s: %v, want that it is in use", name, err)
		}
	}
	if err := add(s, newSized("b", 1, 1)); err != nil || len(stored(t, s)) != 2 {
		t.Errorf("the store that has it: %v, %d objects", err, len(stored(t, s)))
	}
}

// Mode can be read from JSON only as one of two values, so that an empty Mode can be written
// but not read again.
type Mode string

// UnmarshalJSON reads a Mode.
func (m *Mode) UnmarshalJSON(b []byte) error {
	if err := json.Unmarshal(b, (*string)(m)); err != nil {
		return err
	}
	if *m != "on" && *m != "off" {
		return fmt.Errorf("no mode %q", *m)
	}
	return nil
}

// Moded has a Mode.
type Moded struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Mode              Mode `json:"mode"`
}

// DeepCopyObject returns a shallow copy, which is enough for the test.
func (m *Moded) DeepCopyObject() runtime.Object { next := *m; return &next }

func TestObjectsThatCouldNotBeReadAgainAreRefused(t *testing.T) {
	s := open(t, newPath(t), &Moded{}, disk.Options{})
	bad := &Moded{ObjectMeta: metav1.ObjectMeta{Name: "bad"}}
	err := s.Apply(t.Context(), []informer.Change{adding(bad)}, "1")
	if !errors.Is(err, informer.ErrPermanent) || !strings.Contains(err.Error(), "bad") {
		t.Errorf("Apply: %v, want that it is refused, with its key", err)
	}
	good := &Moded{ObjectMeta: metav1.ObjectMeta{Name: "good"}, Mode: "on"}
	noError(t, s.Apply(t.Context(), []informer.Change{adding(good)}, "1"))
	if objs, err := s.Scan(t.Context(), "", 10); len(objs) != 1 || err != nil {
		t.Errorf("Scan: %v, %v", objs, err)
	}
}

func TestAnIdentityOfInvalidTextIsRefused(t *testing.T) {
	path := newPath(t)
	_, err := disk.Open(path, sample.ConfigMap("", ""), disk.Options{Identity: store.Identity{Cluster: "\xffhash"}})
	if err == nil || !strings.Contains(err.Error(), `Options.Identity.Cluster is "\xffhash"`) {
		t.Errorf("Open: %v", err)
	}
}

func TestAnIdentityThatNamesNoClusterOrKindIsRefusedAndTheFileIsLeftAlone(t *testing.T) {
	for name, c := range map[string]struct {
		example       runtime.Object
		identity, add store.Identity
	}{
		"no cluster": {&corev1.Pod{}, store.Identity{Resource: "pods"}, store.Identity{Cluster: "c", Resource: "pods"}},
		"no kind":    {&unstructured.Unstructured{}, store.Identity{Cluster: "c"}, store.Identity{Cluster: "c", Resource: "pods"}},
	} {
		path := newPath(t)
		opts := disk.Options{Identity: c.identity, ErrorHandler: func(err error) { t.Errorf("%s: reported: %v", name, err) }}
		refused := func() {
			t.Helper()
			want := fmt.Sprintf("disk: open %s: Options.%v", path, c.identity.Validate(reflect.TypeOf(c.example)))
			if _, err := disk.Open(path, c.example, opts); err == nil || err.Error() != want {
				t.Errorf("%s: %v, want %s", name, err, want)
			}
		}
		refused()
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: there is a file: %v", name, err)
		}
		must(t, open(t, path, c.example, disk.Options{Identity: c.add}).Close())
		refused() // and reports no file that is set aside
		open(t, path, c.example, disk.Options{Identity: c.add})
	}
}

// failing is a file that cannot be read from some offset on.
type failing struct {
	io.ReaderAt
	from int64
}

func (f failing) ReadAt(p []byte, at int64) (int, error) {
	if at >= f.from {
		return 0, syscall.EIO
	}
	return f.ReaderAt.ReadAt(p, at)
}

// An error of the operating system does not mean that the file is damaged.
func TestAnErrorOfTheDiskIsNoDamage(t *testing.T) {
	file := whole(t, 5)
	for from := int64(0); from < int64(len(file)); from += disk.PageSize {
		unread, err := disk.CheckRead(failing{strings.NewReader(string(file)), from}, int64(len(file)))
		if err != nil && (!unread || !errors.Is(err, syscall.EIO) || errors.Is(err, disk.ErrDamaged)) {
			t.Errorf("from page %d on: %v", from/disk.PageSize, err)
		}
		if err == nil && from == 0 {
			t.Error("a file that cannot be read was checked")
		}
	}
}

// A file that was set aside is kept until another file with contents is set aside. Files with
// other names are never removed.
func TestFilesSetAsideAreKept(t *testing.T) {
	path := newPath(t)
	users := path + ".aside-for-the-report"
	writeFile(t, users, []byte("mine"))
	var aside []string
	begin := func(version string) {
		s, err := disk.Open(path, sample.ConfigMap("", ""), disk.Options{Identity: store.Identity{Cluster: "c", Version: version}, ErrorHandler: func(err error) {
			var set *disk.SetAsideError
			if errors.As(err, &set) {
				aside = append(aside, set.Aside)
			} else {
				t.Error(err)
			}
		}})
		must(t, err)
		must(t, errors.Join(s.Apply(t.Context(), []informer.Change{deleting(newSized("a", 1, 1))}, "1"), s.Close()))
	}
	left := func(want ...string) {
		t.Helper()
		found, err := filepath.Glob(path + ".aside-*")
		slices.Sort(want)
		if slices.Sort(found); err != nil || !slices.Equal(found, want) {
			t.Errorf("there is %q, %v, want %q", found, err, want)
		}
	}
	begin("1")
	begin("2")
	left(users, aside[0])
	if err := os.Truncate(path, disk.PageSize/2); err != nil { // as if killed in the middle of the very first write
		t.Fatal(err)
	}
	begin("2")
	left(users, aside[0], aside[1])
	begin("3")
	left(users, aside[2])
}

// While an index is being added, an error of its function does not make writes fail.
func TestAnIndexThatFailsRefusesNothingYet(t *testing.T) {
	s := open(t, newPath(t), sample.ConfigMap("", ""), disk.Options{Durability: disk.SurviveProcess})
	must(t, add(s, newSized("a", 1, 1)))
	var applied error
	err := s.AddIndexers(cache.Indexers{"bad": func(obj any) ([]string, error) {
		if obj.(informer.AnyObject).GetName() == "b" {
			return nil, errors.New("not this one")
		}
		applied = s.Apply(t.Context(), []informer.Change{adding(newSized("b", 1, 1))}, "1") // while a is being indexed
		return nil, nil
	}})
	if applied != nil {
		t.Errorf("Apply, meanwhile: %v", applied)
	}
	if err == nil || !strings.Contains(err.Error(), "not this one") || len(s.GetIndexers()) != 0 {
		t.Errorf("AddIndexers: %v, there is %v", err, s.GetIndexers())
	}
	if err := s.AddIndexers(cache.Indexers{"bad": versionIndexer["version"]}); err != nil {
		t.Errorf("the same name once more: %v", err)
	}
	if found, err := s.ByIndex(t.Context(), "bad", "1"); len(found) != 2 || err != nil {
		t.Errorf("ByIndex: %v, %v", found, err)
	}
}

// wantPanic fails the test unless Open panics with "oh no".
func wantPanic(t *testing.T, path string, example runtime.Object, opts disk.Options) {
	t.Helper()
	defer func() {
		if recover() != "oh no" {
			t.Error("Open has not panicked")
		}
	}()
	_, _ = disk.Open(path, example, identified(opts))
}

func TestAnIndexFunctionThatPanicsLeavesTheFileFree(t *testing.T) {
	path := newPath(t)
	s := open(t, path, sample.ConfigMap("", ""), disk.Options{})
	must(t, errors.Join(add(s, newSized("a", 1, 1)), s.Close()))
	wantPanic(t, path, sample.ConfigMap("", ""), disk.Options{Indexers: cache.Indexers{"bad": func(any) ([]string, error) { panic("oh no") }}})
	if s := open(t, path, sample.ConfigMap("", ""), disk.Options{}); len(stored(t, s)) != 1 {
		t.Error("the object is gone")
	}
}
