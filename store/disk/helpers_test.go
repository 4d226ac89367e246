package disk_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/sample"
	"github.com/customcacheinformer/informer/store/disk"
)

func keyOf(obj informer.AnyObject) string { return cache.MetaObjectToName(obj).String() }

// add stores objects, and removes the bookmark.
func add(s *disk.Store, objs ...informer.AnyObject) error {
	var changes []informer.Change
	for _, obj := range objs {
		changes = append(changes, adding(obj))
	}
	return s.Apply(context.Background(), changes, "")
}

// stored returns all objects.
func stored(t *testing.T, s *disk.Store) []informer.Entry {
	t.Helper()
	all, err := s.Scan(t.Context(), "", 100_000)
	noError(t, err)
	return all
}

func withUID(obj informer.AnyObject, uid string) informer.AnyObject {
	obj.SetUID(types.UID(uid))
	return obj
}

func describe(raw any) string {
	obj := raw.(informer.AnyObject)
	return fmt.Sprintf("%s/%s %s@%s", obj.GetNamespace(), obj.GetName(), obj.GetUID(), obj.GetResourceVersion())
}

// versionIndexer has an index with a few objects for each value.
var versionIndexer = cache.Indexers{"version": func(obj any) ([]string, error) {
	return []string{obj.(informer.AnyObject).GetResourceVersion(), obj.(informer.AnyObject).GetNamespace()}, nil
}}

// contents returns the whole contents of a store, read in all ways, also by index.
func contents(t *testing.T, s *disk.Store) (all []string) {
	t.Helper()
	bookmark, err := s.Resume(context.Background())
	must(t, err)
	all = append(all, "bookmark "+bookmark)
	tombstones, err := s.Tombstones(context.Background())
	must(t, err)
	for _, e := range tombstones {
		all = append(all, "tombstone "+describe(e.Object))
	}
	values := map[string]bool{} // those of the objects, and those that objects may have had before
	if last, err := strconv.Atoi(bookmark); err == nil {
		for version := range last {
			values[strconv.Itoa(version)] = true
		}
	}
	for _, e := range stored(t, s) {
		all = append(all, "object "+describe(e.Object))
		of, _ := versionIndexer["version"](e.Object)
		for _, value := range of {
			values[value] = true
		}
	}
	for value := range values {
		if s.GetIndexers()["version"] == nil {
			break
		}
		found, err := s.ByIndex(context.Background(), "version", value)
		must(t, err)
		for _, e := range found {
			all = append(all, "under "+value+" "+describe(e.Object))
		}
	}
	slices.Sort(all)
	return all
}

func newSized(name string, version, size int) informer.AnyObject {
	obj := sample.ConfigMap("default", name).(*corev1.ConfigMap)
	obj.UID, obj.ResourceVersion = types.UID(fmt.Sprintf("uid-%s-%d", name, version)), strconv.Itoa(version)
	obj.Data = map[string]string{"of": fmt.Sprintf("<%s in version %d>", name, version), "more": strings.Repeat(name, size/len(name))}
	return obj
}

// overwrite replaces a text everywhere in a file that is open, by another one of its length.
func overwrite(t *testing.T, path, was, is string) {
	t.Helper()
	file := readFile(t, path)
	if !bytes.Contains(file, []byte(was)) {
		t.Fatalf("%q is not in the file", was)
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	must(t, err)
	_, err = f.WriteAt(bytes.ReplaceAll(file, []byte(was), []byte(is)), 0)
	must(t, errors.Join(err, f.Close()))
}

func cut(text string) string { return text[:min(len(text), 2000)] }

// reads is a file that records which pages were read.
type reads struct {
	*bytes.Reader
	pages map[int]bool
}

func (r *reads) ReadAt(p []byte, off int64) (int, error) {
	for at := off; at < off+int64(len(p)); at += disk.PageSize {
		r.pages[int(at/disk.PageSize)] = true
	}
	return r.Reader.ReadAt(p, off)
}

// usedPages returns the pages that are not free.
func usedPages(t *testing.T, file []byte) []int {
	t.Helper()
	r := &reads{Reader: bytes.NewReader(file), pages: map[int]bool{}}
	if _, err := disk.CheckRead(r, int64(len(file))); err != nil {
		t.Fatal(err)
	}
	return slices.Sorted(maps.Keys(r.pages))
}
