package disk_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/sample"
	"github.com/customcacheinformer/informer/store"
	"github.com/customcacheinformer/informer/store/disk"
)

var thisIdentity = store.Identity{Cluster: "this", Resource: "configmaps", Namespace: "default", Selector: "app=web", Version: "1"}

// filledFile makes a file with an object and a bookmark.
func filledFile(t *testing.T, opts disk.Options) (path string) {
	t.Helper()
	path = newPath(t)
	s := open(t, path, sample.ConfigMap("", ""), opts)
	must(t, errors.Join(s.Apply(t.Context(), []informer.Change{adding(newSized("a", 1, 10))}, "1"), s.Close()))
	return path
}

func change(f func(*store.Identity)) store.Identity {
	i := thisIdentity
	f(&i)
	return i
}

func TestAFileOfSomethingElseIsSetAside(t *testing.T) {
	for name, c := range map[string]struct {
		example  runtime.Object
		identity store.Identity
	}{
		"type of the objects": {&corev1.Secret{}, thisIdentity},
		"Identity.Cluster":    {&corev1.ConfigMap{}, change(func(i *store.Identity) { i.Cluster = "that" })},
		"Identity.Resource":   {&corev1.ConfigMap{}, change(func(i *store.Identity) { i.Resource = "secrets" })},
		"Identity.Namespace":  {&corev1.ConfigMap{}, change(func(i *store.Identity) { i.Namespace = "" })},
		"Identity.Selector":   {&corev1.ConfigMap{}, change(func(i *store.Identity) { i.Selector = "app=db" })},
		"Identity.Version":    {&corev1.ConfigMap{}, change(func(i *store.Identity) { i.Version = "2" })},
	} {
		t.Run(name, func(t *testing.T) {
			path := filledFile(t, disk.Options{Identity: thisIdentity})
			wantAside(t, path, c.example, disk.Options{Identity: c.identity}, name)
			if err := open(t, path, c.example, disk.Options{Identity: c.identity}).Close(); err != nil { // the file now has that identity
				t.Error(err)
			}
		})
	}
	path := filledFile(t, disk.Options{Identity: thisIdentity})
	if s := open(t, path, &corev1.ConfigMap{}, disk.Options{Identity: thisIdentity}); len(stored(t, s)) != 1 {
		t.Error("a file of the same is not used")
	}
}

// wantAside fails the test unless a file is set aside with an error that contains reason. It returns the error.
func wantAside(t *testing.T, path string, example runtime.Object, opts disk.Options, reason string) disk.SetAsideError {
	t.Helper()
	var reported []error
	opts.ErrorHandler = func(err error) { reported = append(reported, err) }
	s := open(t, path, example, opts)
	var set *disk.SetAsideError
	if len(reported) != 1 || !errors.As(reported[0], &set) || !strings.Contains(set.Error(), reason) || set.Path != path {
		t.Fatalf("reported: %v, want that %s was set aside for %s", reported, path, reason)
	}
	if _, err := os.Stat(set.Aside); err != nil || !strings.HasPrefix(set.Aside, path) {
		t.Errorf("it is not where the report says: %v", err)
	}
	rv, err := s.Resume(t.Context())
	if rv != "" || err != nil || len(stored(t, s)) > 0 {
		t.Errorf("what takes its place has the bookmark %q, %v, and %v", rv, err, stored(t, s))
	}
	noError(t, s.Close())
	return *set
}

// inFile changes a file in a way that no store would.
func inFile(t *testing.T, path string, f func(tx *bbolt.Tx) error) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, nil)
	if err == nil {
		err = errors.Join(db.Update(f), db.Close())
	}
	must(t, err)
}

func TestAFileOfAnotherFormatOrWithOtherFieldsIsSetAside(t *testing.T) {
	for was, is := range map[string]string{`"Format":1`: `"Format":2`, `"Fields":"`: `"Fields":"0`, `"Encoding":"protobuf"`: `"Encoding":"JSON"`} {
		path := filledFile(t, disk.Options{})
		inFile(t, path, func(tx *bbolt.Tx) error {
			about, key := tx.Bucket([]byte("about")), []byte("label")
			text := strings.Replace(string(about.Get(key)[4:]), was, is, 1)
			return about.Put(key, disk.Put(key, []byte(text)))
		})
		_, reason, _ := strings.Cut(strings.ToLower(is), `"`)
		reason, _, _ = strings.Cut(reason, `"`)
		wantAside(t, path, &corev1.ConfigMap{}, disk.Options{}, reason)
	}
}

func TestAnIncompleteFileIsSetAside(t *testing.T) {
	for name, f := range map[string]func(tx *bbolt.Tx) error{
		"objects":     func(tx *bbolt.Tx) error { return tx.DeleteBucket([]byte("objects")) },
		"label":       func(tx *bbolt.Tx) error { return disk.Remove(tx.Bucket([]byte("about")), []byte("label")) },
		"sum up":      func(tx *bbolt.Tx) error { return tx.Bucket([]byte("about")).Delete([]byte("label")) },
		"others":      func(tx *bbolt.Tx) error { _, err := tx.CreateBucket([]byte("others")); return err },
		"checksum":    func(tx *bbolt.Tx) error { return tx.Bucket([]byte("objects")).Put([]byte("a"), []byte("object")) },
		"has 3 bytes": func(tx *bbolt.Tx) error { return tx.Bucket([]byte("objects")).Put([]byte("a"), []byte("abc")) },
	} {
		path := filledFile(t, disk.Options{})
		inFile(t, path, f)
		wantAside(t, path, &corev1.ConfigMap{}, disk.Options{}, name)
	}
}

func TestOneFileIsKeptThatWasSetAside(t *testing.T) {
	path := filledFile(t, disk.Options{})
	older, others := path+".aside-20200101T000000.000000Z", []string{path + "2", path + ".asides", filepath.Join(filepath.Dir(path), "my"+filepath.Base(path)+".aside-1")}
	for _, name := range append(others, older) {
		writeFile(t, name, nil)
	}
	wantAside(t, path, &corev1.ConfigMap{}, disk.Options{Identity: thisIdentity}, "Identity")
	if _, err := os.Stat(older); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the older one is still there: %v", err)
	}
	for _, name := range others {
		if _, err := os.Stat(name); err != nil {
			t.Errorf("somebody else's file is gone: %v", err)
		}
	}
}

func TestAnUnsyncedFileIsNotUsedOnAnotherMachine(t *testing.T) {
	opts := disk.Options{Durability: disk.SurviveProcess}
	moved := func(tx *bbolt.Tx) error {
		about, key := tx.Bucket([]byte("about")), []byte("session")
		if about.Get(key) == nil {
			return errors.New("it is not noted that not all is synced")
		}
		return about.Put(key, disk.Put(key, []byte("another boot of the machine")))
	}
	synced := func(tx *bbolt.Tx) error {
		if tx.Bucket([]byte("about")).Get([]byte("session")) != nil {
			return errors.New("it is still noted that not all is synced")
		}
		return nil
	}
	path := newPath(t)
	s := open(t, path, sample.ConfigMap("", ""), opts)
	must(t, add(s, newSized("a", 1, 1)))
	for name, next := range map[string]disk.Options{"the same": opts, "the other": {}} {
		copied := crashed(t, path)
		if s := open(t, copied, sample.ConfigMap("", ""), next); len(stored(t, s)) != 1 {
			t.Errorf("%s durability: after a crash of the process, the file is not used", name)
		} else if err := s.Close(); err != nil {
			t.Error(err)
		}
		if name == "the other" {
			inFile(t, copied, synced)
		}
		copied = crashed(t, path)
		inFile(t, copied, moved)
		wantAside(t, copied, &corev1.ConfigMap{}, next, "machine")
	}
	must(t, s.Close())
	inFile(t, path, synced)
}

func TestErrorsOutsideTheFileLeaveItAlone(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	writeFile(t, file, []byte("text"))
	for name, c := range map[string]struct {
		path    string
		example runtime.Object
		opts    disk.Options
		want    string
	}{
		"a directory":        {dir, &corev1.ConfigMap{}, disk.Options{}, "regular"},
		"in no directory":    {filepath.Join(dir, "none", "a.db"), &corev1.ConfigMap{}, disk.Options{}, "no such"},
		"in a file":          {filepath.Join(file, "a.db"), &corev1.ConfigMap{}, disk.Options{}, "not a directory"},
		"no example":         {filepath.Join(dir, "a"), nil, disk.Options{}, "example"},
		"no such durability": {filepath.Join(dir, "a"), &corev1.ConfigMap{}, disk.Options{Durability: 2}, "Durability"},
		"a nil indexer":      {filepath.Join(dir, "a"), &corev1.ConfigMap{}, disk.Options{Indexers: cache.Indexers{"a": nil}}, "nil"},
	} {
		if _, err := tryOpen(t, c.path, c.example, c.opts); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.path) {
			t.Errorf("%s: %v, want an error that says %q and the path", name, err, c.want)
		}
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		t.Errorf("the directory was moved: %v", err)
	}
	if os.Geteuid() == 0 {
		t.Skip("to this user all directories can be written")
	}
	must(t, os.Chmod(dir, 0o500))
	if _, err := tryOpen(t, filepath.Join(dir, "a"), &corev1.ConfigMap{}, disk.Options{}); !errors.Is(err, os.ErrPermission) {
		t.Errorf("in a directory that cannot be written: %v", err)
	}
}

func TestAFileIsOpenOnce(t *testing.T) {
	path := newPath(t)
	first := open(t, path, sample.ConfigMap("", ""), disk.Options{})
	for range 3 {
		if _, err := tryOpen(t, path, sample.ConfigMap("", ""), disk.Options{}); !errors.Is(err, disk.ErrInUse) || !strings.Contains(err.Error(), path) {
			t.Fatalf("a second Open: %v, want that %s is in use", err, path)
		}
	}
	if err := add(first, newSized("a", 1, 1)); err != nil {
		t.Errorf("the first does not go on: %v", err)
	}
	must(t, first.Close())
	if s := open(t, path, sample.ConfigMap("", ""), disk.Options{}); len(stored(t, s)) != 1 {
		t.Error("what the first has stored is not there")
	}
}
