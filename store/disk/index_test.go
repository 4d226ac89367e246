package disk_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/sample"
	"github.com/customcacheinformer/informer/store/disk"
)

// oddValues are index values that a careless encoding of keys would confuse.
var oddValues = []string{
	"", "a", "a\x00", "a\x00a", "\x00", "\x00\x00", "\x00\x01", "\x00\xff", "\x01", "\xff", "\xff\xff", "a/b", "default/o-1",
	strings.Repeat("l", 1024), strings.Repeat("l", 1025), strings.Repeat("l", 40_000), strings.Repeat("l", 39_999) + "m",
	"l\x00" + strings.Repeat("\x00", 1022), "ü",
}

// byValues is an index by the numbers in a field of an object's data. The field may have
// duplicates, and is in no order.
func byValues(field string) cache.IndexFunc {
	return func(obj any) (values []string, err error) {
		for number := range strings.FieldsSeq(obj.(*corev1.ConfigMap).Data[field]) {
			i, err := strconv.Atoi(number)
			if err != nil {
				return nil, err
			}
			values = append(values, oddValues[i])
		}
		return values, nil
	}
}

func indexed(random *rand.Rand, version int) *corev1.ConfigMap {
	obj := sample.ConfigMap("default", fmt.Sprintf("o-%d", random.IntN(30))).(*corev1.ConfigMap)
	if random.IntN(3) == 0 {
		obj.Namespace = ""
	}
	obj.ResourceVersion = strconv.Itoa(version)
	for _, field := range []string{"one", "two"} {
		for range random.IntN(5) {
			obj.Data[field] += fmt.Sprint(" ", random.IntN(len(oddValues)))
		}
	}
	return obj
}

// The reference is client-go's indexer.
func TestTheIndexesAreThoseOfClientGo(t *testing.T) {
	rounds := often(100, 400)
	path := newPath(t)
	opts := disk.Options{Durability: disk.SurviveProcess, Indexers: cache.Indexers{"one": byValues("one"), "two": byValues("two")}}
	s, reference := open(t, path, &corev1.ConfigMap{}, opts), cache.NewIndexer(cache.MetaNamespaceKeyFunc, opts.Indexers)
	random := rand.New(rand.NewPCG(1, 9))
	for version := range rounds {
		obj := indexed(random, version)
		var err error
		switch random.IntN(12) {
		case 0, 1, 2:
			err = errors.Join(s.Apply(t.Context(), []informer.Change{deleting(obj)}, ""), reference.Delete(obj))
		case 3, 4:
			err = errors.Join(s.Apply(t.Context(), []informer.Change{deleting(obj), adding(obj), deleting(obj)}, ""), reference.Delete(obj))
		case 5:
			if err = s.Close(); err == nil {
				s = open(t, path, &corev1.ConfigMap{}, opts)
			}
		default:
			other := indexed(random, version)
			err = errors.Join(s.Apply(t.Context(), []informer.Change{adding(other), adding(obj)}, ""), reference.Update(other), reference.Update(obj))
		}
		must(t, err)
		if version%5 == 0 {
			wantSameIndexes(t, reference, s)
		}
		if t.Failed() {
			t.FailNow()
		}
	}
}

// indexerOf returns client-go's indexer with the objects of a store.
func indexerOf(t *testing.T, s *disk.Store, indexers cache.Indexers) cache.Indexer {
	t.Helper()
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, indexers)
	for _, e := range stored(t, s) {
		must(t, indexer.Add(e.Object))
	}
	return indexer
}

// wantSameIndexes fails the test unless a store finds the same objects as an indexer, under any value.
func wantSameIndexes(t *testing.T, want cache.Indexer, got *disk.Store) {
	t.Helper()
	for name := range want.GetIndexers() {
		for i, value := range oddValues {
			wanted, wrong := want.ByIndex(name, value)
			found, err := got.ByIndex(t.Context(), name, value)
			noError(t, errors.Join(wrong, err))
			var all [2][]string
			for _, obj := range wanted {
				all[0] = append(all[0], keyOf(obj.(informer.AnyObject))+" "+describe(obj))
			}
			for _, e := range found {
				all[1] = append(all[1], e.Key+" "+describe(e.Object))
			}
			slices.Sort(all[0])
			slices.Sort(all[1])
			if !slices.Equal(all[0], all[1]) {
				t.Errorf("ByIndex(%s) of value %d: %v, want %v", name, i, all[1], all[0])
			}
		}
	}
}

func TestAnIndexIsBuiltWhileOthersWrite(t *testing.T) {
	s := open(t, newPath(t), &corev1.ConfigMap{}, disk.Options{Durability: disk.SurviveProcess})
	random := rand.New(rand.NewPCG(2, 9))
	var first []informer.Change
	for i := range 3000 { // enough for several pages
		obj := indexed(random, i)
		obj.Name = fmt.Sprintf("p-%04d", i)
		first = append(first, adding(obj))
	}
	must(t, s.Apply(t.Context(), first, "1"))
	for round := range often(3, 3) {
		var all sync.WaitGroup
		added := make(chan struct{})
		all.Go(func() {
			defer close(added)
			noError(t, s.AddIndexers(cache.Indexers{fmt.Sprint(round): byValues("one")}))
		})
		all.Go(func() {
			writes := rand.New(rand.NewPCG(3, uint64(round)))
			for i := 0; ; i++ {
				select {
				case <-added:
					return
				default:
				}
				obj := indexed(writes, i)
				obj.Name = fmt.Sprintf("p-%04d", writes.IntN(3200))
				change := adding(obj)
				if i%3 == 0 {
					change = deleting(obj)
				}
				if err := s.Apply(t.Context(), []informer.Change{change}, "2"); err != nil {
					t.Error(err)
					return
				}
			}
		})
		all.Wait()
		wantSameIndexes(t, indexerOf(t, s, cache.Indexers{fmt.Sprint(round): byValues("one")}), s)
	}
}

func counted(f cache.IndexFunc, calls *int) cache.IndexFunc {
	return func(obj any) ([]string, error) {
		*calls++
		return f(obj)
	}
}

func TestAnIndexOfTheFileIsTakenOver(t *testing.T) {
	path := newPath(t)
	s := open(t, path, &corev1.ConfigMap{}, disk.Options{Durability: disk.SurviveProcess, Indexers: cache.Indexers{"one": byValues("one"), "two": byValues("two")}})
	random := rand.New(rand.NewPCG(4, 9))
	reference := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{"one": byValues("one"), "two": byValues("two")})
	for i := range 700 {
		obj := indexed(random, i)
		obj.Name = fmt.Sprint("p-", i)
		must(t, errors.Join(s.Apply(t.Context(), []informer.Change{adding(obj)}, "1"), reference.Add(obj)))
	}
	reopen := func(write bool) {
		t.Helper()
		must(t, s.Close())
		s = open(t, path, &corev1.ConfigMap{}, disk.Options{Durability: disk.SurviveProcess})
		if len(s.GetIndexers()) != 0 {
			t.Errorf("there are indexes that nobody has asked for: %v", s.GetIndexers())
		}
		if write {
			obj := indexed(random, 1)
			obj.Namespace, obj.Name = "", "zz" // after the objects for which an index is compared
			must(t, s.Apply(t.Context(), []informer.Change{adding(obj)}, "2"))
			reference = indexerOf(t, s, reference.GetIndexers())
		}
	}
	add := func(name string, f cache.IndexFunc) (calls int) {
		t.Helper()
		must(t, s.AddIndexers(cache.Indexers{name: counted(f, &calls)}))
		return calls
	}
	const all = 600 // more objects than those for which an index is compared
	reopen(false)
	if n := add("one", byValues("one")); n == 0 || n > all {
		t.Errorf("to take an index over, its function was called %d times", n)
	}
	if n := add("two", byValues("two")); n > all {
		t.Errorf("to take a second index over, its function was called %d times", n)
	}
	wantSameIndexes(t, reference, s)
	reopen(true)
	if n := add("one", byValues("one")); n < all {
		t.Errorf("after a write without it, an index was taken over: its function was called %d times", n)
	}
	reopen(false)
	if n := add("two", byValues("two")); n < all {
		t.Errorf("an index that was removed was taken over: its function was called %d times", n)
	}
	if n := add("one", byValues("one")); n > all {
		t.Errorf("to take an index over beside a new one, its function was called %d times", n)
	}
	wantSameIndexes(t, reference, s)
	reopen(false)
	if n := add("one", byValues("two")); n < all {
		t.Errorf("an index of another function was taken over: its function was called %d times", n)
	}
	wantSameIndexes(t, indexerOf(t, s, cache.Indexers{"one": byValues("two")}), s)
}

func TestAnIndexThatCannotBeBuiltIsNotAdded(t *testing.T) {
	path := newPath(t)
	s := open(t, path, &corev1.ConfigMap{}, disk.Options{})
	must(t, add(s, newSized("a", 1, 1)))
	wrong := errors.New("wrong")
	good := func(any) ([]string, error) { return []string{"x"}, nil }
	bad := func(any) ([]string, error) { return nil, wrong }
	for range 2 {
		err := s.AddIndexers(cache.Indexers{"good": good, "bad": bad})
		if !errors.Is(err, wrong) || !strings.Contains(err.Error(), "default/a") || !strings.Contains(err.Error(), "bad") {
			t.Errorf("AddIndexers: %v, want an error with the name of the index and the key", err)
		}
		if n := len(s.GetIndexers()); n != 0 {
			t.Errorf("there are %d indexes", n)
		}
	}
	must(t, s.AddIndexers(cache.Indexers{"good": good}))
	if found, err := s.ByIndex(t.Context(), "good", "x"); err != nil || len(found) != 1 {
		t.Errorf("found: %v, %v", found, err)
	}
	if err := s.AddIndexers(cache.Indexers{"other": good, "good": good}); err == nil || s.GetIndexers()["other"] != nil {
		t.Errorf("beside one that is there, another one was added: %v", err)
	}
	s.GetIndexers()["mine"] = good
	if s.GetIndexers()["mine"] != nil {
		t.Error("the map of GetIndexers is the store's")
	}
}
