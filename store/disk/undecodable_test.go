package disk_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/store/disk"
)

// Note cannot be decoded if it is "old" and the program is new. The methods and fields of the
// type are the same in the old program and in the new one.
type Note string

// decodeOld is how the program decodes an old note.
var decodeOld func() error

func oldProgram() error   { return nil }
func newProgram() error   { return errors.New("an old note") }
func wrongProgram() error { panic("oh no") }

// UnmarshalJSON reads a Note.
func (n *Note) UnmarshalJSON(b []byte) error {
	if err := json.Unmarshal(b, (*string)(n)); err != nil || *n != "old" {
		return err
	}
	return decodeOld()
}

// Noted has a Note.
type Noted struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Note              Note `json:"note"`
}

// DeepCopyObject returns a shallow copy, which is enough for the test.
func (n *Noted) DeepCopyObject() runtime.Object { next := *n; return &next }

func newNoted(number int, note Note) *Noted {
	return &Noted{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("o-%04d", number)}, Note: note}
}

// notedFile makes a file with n objects, numbered from 1, of which one or more have old notes, and
// of which others are deleted. The program is a new one afterwards.
func notedFile(t *testing.T, n int, is func(number int) (note Note, deleted bool)) (path string) {
	t.Helper()
	decodeOld = oldProgram
	path = newPath(t)
	s := open(t, path, &Noted{}, disk.Options{Durability: disk.SurviveProcess})
	var changes []informer.Change
	for number := 1; number <= n; number++ {
		note, deleted := is(number)
		if changes = append(changes, adding(newNoted(number, note))); deleted {
			changes = append(changes, deleting(newNoted(number, note)))
		}
	}
	must(t, errors.Join(s.Apply(t.Context(), changes, "1"), s.Close()))
	decodeOld = newProgram
	return path
}

// old returns the note of an object: "old" if that is so, otherwise "new".
func old(so bool) Note {
	if so {
		return "old"
	}
	return "new"
}

// hidden is the number of an object that Open does not decode, of that many objects.
const hidden, notedObjects = 1150, 1200

func onlyHidden(number int) (note Note, deleted bool) { return old(number == hidden), false }

func TestAFileWithAnObjectThatCannotBeDecodedIsSetAside(t *testing.T) {
	for name, c := range map[string]struct {
		is  func(number int) (Note, bool)
		key string
	}{
		"the first object": {func(n int) (Note, bool) { return old(n == 1), false }, "default/o-0001"},
		"an object of the first page": {
			func(n int) (Note, bool) { return old(n == 999), false }, "default/o-0999",
		},
		"all later objects": {func(n int) (Note, bool) { return old(n > 1000), false }, "default/o-1100"},
		"a tombstone":       {func(n int) (Note, bool) { return old(n == 7), n <= 10 }, "default/o-0007"},
	} {
		t.Run(name, func(t *testing.T) {
			path := notedFile(t, notedObjects, c.is)
			wantAside(t, path, &Noted{}, disk.Options{}, fmt.Sprintf("the record of %q cannot be decoded: an old note", c.key))
		})
	}
}

// Open does not decode all objects. If it has missed one, the first reading of the object leads
// to an error, and the next Open sets the file aside.
func TestAnObjectThatCannotBeDecodedIsAnErrorWithItsKeyAndTheNextOpenSetsTheFileAside(t *testing.T) {
	path := notedFile(t, notedObjects, onlyHidden)
	s := open(t, path, &Noted{}, disk.Options{})
	if _, exists, err := s.Get(t.Context(), keyOf(newNoted(hidden-1, ""))); !exists || err != nil {
		t.Errorf("Get of another object: %v, %v", exists, err)
	}
	_, _, get := s.Get(t.Context(), keyOf(newNoted(hidden, "")))
	_, scan := s.Scan(t.Context(), "default/o-1100", 100)
	for op, err := range map[string]error{
		"Get": get, "Scan": scan, "AddIndexers": s.AddIndexers(versionIndexer),
	} {
		const want = `the record of "default/o-1150" cannot be decoded: an old note`
		if err == nil || !strings.Contains(err.Error(), want) || !errors.Is(err, disk.ErrDamaged) || errors.Is(err, informer.ErrPermanent) {
			t.Errorf("%s: %v, want that %s", op, err, want)
		}
	}
	if objs, err := s.Scan(t.Context(), "", hidden-1); len(objs) != hidden-1 || err != nil {
		t.Errorf("Scan of the objects before it: %d objects, %v", len(objs), err)
	}
	if err := errors.Join(add(s, newNoted(1, "new")), s.Close()); err != nil {
		t.Errorf("Add of another object: %v", err)
	}
	wantAside(t, path, &Noted{}, disk.Options{}, `the record of "default/o-1150" cannot be decoded: an old note`)
	open(t, path, &Noted{}, disk.Options{}) // the file that takes its place is used
}

func TestATombstoneThatCannotBeDecodedIsAnErrorWithTheKeyOfItsObject(t *testing.T) {
	path := notedFile(t, 10, func(n int) (Note, bool) { return old(n == 7), true })
	decodeOld = oldProgram
	s := open(t, path, &Noted{}, disk.Options{})
	decodeOld = newProgram
	_, err := s.Tombstones(t.Context())
	if want := `the record of "default/o-0007" cannot be decoded: an old note`; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Tombstones: %v, want that %s", err, want)
	}
}

// An index that is built decodes all objects.
func TestOpenSetsAFileAsideOfWhichNoIndexCanBeBuilt(t *testing.T) {
	path := notedFile(t, notedObjects, onlyHidden)
	wantAside(t, path, &Noted{}, disk.Options{Indexers: versionIndexer}, `the record of "default/o-1150" cannot be decoded: an old note`)
	open(t, path, &Noted{}, disk.Options{Indexers: versionIndexer})
}

func TestAnObjectWhoseDecodingPanicsLeavesTheFileFree(t *testing.T) {
	path := notedFile(t, 1, func(int) (Note, bool) { return "old", false })
	decodeOld = wrongProgram
	wantPanic(t, path, &Noted{}, disk.Options{})
	decodeOld = oldProgram
	if s := open(t, path, &Noted{}, disk.Options{}); len(stored(t, s)) != 1 {
		t.Error("the object is gone")
	}
}
