package disk_test

import (
	"encoding/binary"
	"errors"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/sample"
	"github.com/customcacheinformer/informer/store/disk"
)

// patched returns the file with some bytes changed. A patch is a sequence of changes, each
// with a position of three bytes, a length, and that many bytes. With reseal, the checksums of
// the first two pages are corrected, so that their contents are trusted.
func patched(file, patch []byte, reseal bool) []byte {
	file = slices.Clone(file)
	for len(patch) >= 4 {
		at := (int(patch[0])<<16 | int(patch[1])<<8 | int(patch[2])) % len(file)
		n := min(int(patch[3])+1, len(patch)-4)
		copy(file[at:], patch[4:4+n])
		patch = patch[4+n:]
	}
	for page := 0; reseal && page < 2; page++ {
		const header, summed = 16, 56
		meta := file[page*disk.PageSize+header:]
		h := fnv.New64a()
		_, _ = h.Write(meta[:summed])
		binary.NativeEndian.PutUint64(meta[summed:], h.Sum64())
	}
	return file
}

// FuzzOpen opens a file that is nearly valid, or not a store at all. Open must accept it or
// set it aside, and the store must work. If first pages are forged with valid checksums, that
// is noticed only when bbolt fails because of them.
func FuzzOpen(f *testing.F) {
	file := whole(f, 3)                    // with tombstones, an index and a few objects, one of which takes several pages
	meta := func(page, field int) []byte { // returns a position in one of the first two pages
		at := page*disk.PageSize + 16 + field
		return []byte{byte(at >> 16), byte(at >> 8), byte(at)}
	}
	f.Add([]byte{}, false, false)
	f.Add([]byte{}, true, false)
	f.Add([]byte{0, 128, 8, 1, 255, 255}, true, false)                 // the flags of a page
	f.Add([]byte{0, 160, 10, 1, 255, 255}, true, false)                // the number of elements of a page
	f.Add(append(meta(0, 16), 7, 0, 0, 0, 0, 0, 0, 0, 0), true, false) // a root that is not a page
	f.Add(append(meta(1, 32), 7, 255, 255, 255, 255, 255, 255, 255, 255), true, false)
	f.Add(append(meta(0, 40), 7, 255, 255, 255, 255, 255, 255, 255, 127), true, false)
	f.Add(append(meta(1, 48), 7, 255, 255, 255, 255, 255, 255, 255, 255), true, false)
	f.Add([]byte("no file at all"), false, true)
	f.Add(make([]byte, 3*disk.PageSize), true, true)
	f.Fuzz(func(t *testing.T, patch []byte, reseal, alone bool) {
		is := patched(file, patch, reseal)
		if alone {
			is = patch
			if reseal && len(is) >= 2*disk.PageSize {
				is = patched(patch, nil, true)
			}
		}
		path := newPath(t)
		writeFile(t, path, is)
		var aside *disk.SetAsideError
		opts := disk.Options{Indexers: versionIndexer, Durability: disk.SurviveProcess, ErrorHandler: func(err error) {
			if set := (*disk.SetAsideError)(nil); errors.As(err, &set) {
				aside = set
			}
		}}
		s, err := disk.Open(path, sample.ConfigMap("", ""), identified(opts))
		must(t, err)
		defer func() { noError(t, s.Close()) }()
		if all := contents(t, s); aside != nil && len(all) > 1 {
			t.Errorf("in the place of what was set aside is %v", all)
		}
		obj := sample.ConfigMap("default", "another")
		if err := add(s, obj); err != nil {
			if errors.Is(err, disk.ErrDamaged) && reseal {
				return // noticed later, but just as well
			}
			t.Fatal(err)
		}
		if got, exists, err := s.Get(t.Context(), keyOf(obj)); err != nil || !exists || got == nil {
			t.Errorf("what was added: exists %v, %v", exists, err)
		}
	})
}

// The API server, and the decoders of JSON and CBOR, accept less than 10,000 levels. A deeper
// object is refused, because its record could never be read again.
func TestADeepObjectIsKeptOrRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		depth   int
		refused bool
	}{{9_900, false}, {10_100, true}, {1_000_000, true}} {
		s := open(t, newPath(t), &unstructured.Unstructured{}, disk.Options{Identity: thisIdentity})
		var in any = "the end"
		for range c.depth {
			in = map[string]any{"x": in}
		}
		obj := sample.Widget("default", "deep").(*unstructured.Unstructured)
		obj.Object["spec"] = in
		must(t, add(s, sample.Widget("default", "another")))
		if err := add(s, obj); (err != nil) != c.refused || c.refused && !errors.Is(err, informer.ErrPermanent) {
			t.Errorf("depth %d: %.300v, want it refused: %v", c.depth, err, c.refused)
		}
		if n := len(stored(t, s)); (n == 1) != c.refused {
			t.Errorf("depth %d: there are %d objects", c.depth, n)
		}
	}
}

// No two objects share a record, whatever characters their names have.
func TestOddKeysAreAllKept(t *testing.T) {
	t.Parallel()
	s := open(t, newPath(t), sample.ConfigMap("", ""), disk.Options{Indexers: versionIndexer})
	names := []string{"a", "a\x00", "a\x00b", "\x00", "\xff", "\xff\xff", "\xff\xfe", "../../etc/passwd", "\u202egnp.exe", "a b\r\n", strings.Repeat("n", 10_000)}
	n := 0
	for _, namespace := range []string{"", "default", "a\x00", "\xff", "a/b"} {
		for i, name := range names {
			obj := sample.ConfigMap(namespace, name)
			obj.SetUID(types.UID(name[:1]))
			obj.SetResourceVersion(strconv.Itoa(i))
			if err := s.Apply(t.Context(), []informer.Change{adding(obj)}, strconv.Itoa(n)); err != nil {
				t.Fatalf("%.50q %.50q: %v", namespace, name, err)
			}
			n++
			if got, exists, err := s.Get(t.Context(), keyOf(obj)); err != nil || !exists || describe(got) != describe(obj) {
				t.Errorf("%.50q %.50q: %v, exists %v, %v", namespace, name, got, exists, err)
			}
			under, err := s.ByIndex(t.Context(), "version", strconv.Itoa(i))
			if err != nil || len(under) == 0 {
				t.Errorf("%.50q %.50q by its index: %v", namespace, name, err)
			}
		}
	}
	if all := len(stored(t, s)); all != n {
		t.Errorf("there are %d, want %d", all, n)
	}
	for _, e := range stored(t, s) {
		noError(t, s.Apply(t.Context(), []informer.Change{deleting(e.Object)}, "end"))
	}
	if all := contents(t, s); len(all) != 1+n {
		t.Errorf("there is %.1000q, want %d tombstones", all, n)
	}
}
