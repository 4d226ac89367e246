package index

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer/internal/object"
)

// pagedStore is read in pages, which are small whatever it is asked for. It is never listed.
type pagedStore struct {
	cache.Store
	size   int
	err    error              // of each page
	turn   func(after string) // if it is set, it is called before each page
	repeat bool               // it ignores after
}

func (s *pagedStore) List() []any { panic("it was listed") }

func (s *pagedStore) Scan(_ context.Context, after string, limit int) (page object.Entries, err error) {
	if s.err != nil {
		return page, s.err
	}
	if s.turn != nil {
		s.turn(after)
	}
	if s.repeat {
		after = ""
	}
	keys := slices.DeleteFunc(s.ListKeys(), func(key string) bool { return key <= after })
	slices.Sort(keys)
	for _, key := range keys[:min(len(keys), limit, s.size)] {
		obj, _, _ := s.GetByKey(key)
		page.Append(key, obj)
	}
	return page, nil
}

func newPaged(t *testing.T, objects int) *pagedStore {
	t.Helper()
	s := &pagedStore{Store: newPlain(), size: 3}
	for i := range objects {
		if err := s.Add(configured(fmt.Sprintf("o%d", i), "x")); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func TestAScanReadsEveryObjectOnce(t *testing.T) {
	for _, objects := range []int{0, 1, 3, 7} {
		for name, store := range map[string]cache.Store{
			"paged":  newPaged(t, objects),
			"listed": newPaged(t, objects).Store,
		} {
			s := scanOf(store)
			if got, want := s.Paged(), name == "paged"; got != want {
				t.Errorf("%s: read in pages: %t", name, got)
			}
			var names []string
			err := s.Each(t.Context(), func(e object.Entry) bool { names = append(names, e.Object.(configMap).Name); return true })
			slices.Sort(names)
			if unique := slices.Compact(slices.Clone(names)); err != nil || len(names) != objects || len(unique) != objects {
				t.Errorf("%s: read %v (%v), want %d objects", name, names, err, objects)
			}
			if all, err := All[configMap](t.Context(), s, ""); err != nil || len(all) != objects {
				t.Errorf("%s: All returns %d objects (%v), want %d", name, len(all), err, objects)
			}
		}
	}
}

func TestAPageEndsWithTheKeyThatTheNextBeginsAfter(t *testing.T) {
	s := scanOf(newPaged(t, 4))
	for _, page := range []struct {
		after, last string
		objects     int
	}{{"", "default/o2", 3}, {"default/o2", "default/o3", 1}, {"default/o3", "", 0}} {
		objs, last, err := s.Page(t.Context(), page.after)
		if err != nil || last != page.last || objs.Len() != page.objects {
			t.Errorf("after %q: %d objects up to %q (%v), want %d up to %q", page.after, objs.Len(), last, err, page.objects, page.last)
		}
	}
}

func TestAScanEndsWhenItsVisitorHasSeenEnough(t *testing.T) {
	store := newPaged(t, 9)
	pages, visits := 0, 0
	store.turn = func(string) { pages++ }
	err := scanOf(store).Each(t.Context(), func(object.Entry) bool { visits++; return visits < 4 })
	if err != nil || visits != 4 || pages != 2 {
		t.Errorf("%d visits on %d pages (%v), want 4 on 2", visits, pages, err)
	}
}

func TestAStoreThatRepeatsAPageIsAnError(t *testing.T) {
	store := newPaged(t, 5)
	store.repeat = true
	visits := 0
	err := scanOf(store).Each(t.Context(), func(object.Entry) bool { visits++; return true })
	if err == nil || visits != 3 || !strings.Contains(err.Error(), `"default/o2"`) {
		t.Errorf("%d visits, %v", visits, err)
	}
}

type keyed struct {
	cache.Store
	scanner
}

type scanner interface {
	Scan(ctx context.Context, after string, limit int) (object.Entries, error)
}

func (k keyed) Get(_ context.Context, key string) (obj any, exists bool, err error) {
	return k.GetByKey(key)
}

// scanOf returns a Scan in pages of a store that has a Scan, and one of any other store.
func scanOf(store cache.Store) Scan {
	if s, ok := store.(scanner); ok {
		return ScanKeyed(keyed{store, s})
	}
	return NewScan(store)
}

func TestAPageThatEndsWithoutAKeyIsAnError(t *testing.T) {
	store := &nameless{plain: newPlain()}
	if _, _, err := scanOf(store).Page(t.Context(), "default/a"); err == nil || !strings.Contains(err.Error(), `"default/a"`) {
		t.Errorf("read: %v", err)
	}
}

// nameless returns a page that ends with something that is not an object.
type nameless struct{ plain }

func (nameless) Scan(context.Context, string, int) (page object.Entries, err error) {
	page.Append("", "text")
	return page, nil
}

func TestAScanReturnsTheErrorOfTheStore(t *testing.T) {
	store := newPaged(t, 5)
	store.err = errors.New("locked")
	s := scanOf(store)
	if err := s.Each(t.Context(), func(object.Entry) bool { t.Error("visited"); return true }); !errors.Is(err, store.err) {
		t.Errorf("Each: %v", err)
	}
	if _, err := All[configMap](t.Context(), s, ""); !errors.Is(err, store.err) {
		t.Errorf("All: %v", err)
	}
}
