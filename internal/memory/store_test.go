package memory

import (
	"errors"
	"fmt"
	"hash/maphash"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"weak"

	"go.uber.org/goleak"
	"k8s.io/client-go/tools/cache"
)

var testSeed = maphash.MakeSeed()

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// wantKeys fails the test unless an index value has exactly these keys, in a Part, in the Store and in a Snapshot.
func wantKeys(t *testing.T, s *Store, name, value string, want ...string) {
	t.Helper()
	for from, v := range map[string]*Snapshot{"part": s.Snapshot().In(""), "all": s.Snapshot()} {
		found, err := v.ByIndex(name, value)
		if keys := slices.Sorted(slices.Values(found.Keys())); err != nil || !slices.Equal(keys, want) {
			t.Errorf("%s: %s=%q has %q, %v, want %q", from, name, value, keys, err, want)
		}
	}
}

// The values depend on more than the object, and change. The old ones are remembered, so nothing is left of them.
func TestAnIndexFunctionThatChangesItsMindLeavesNothing(t *testing.T) {
	value, calls := "blue", 0
	s := newTestStore(t, "real", cache.Indexers{"color": func(any) ([]string, error) { calls++; return []string{value}, nil }})
	p := s.Part("")
	for _, key := range []string{"a", "b", "c"} {
		p.Put(key, key)
	}
	value = "red"
	p.Remove("a", nil)
	p.Put("b", "b")
	wantKeys(t, s, "color", "blue", "c")
	wantKeys(t, s, "color", "red", "b")
	if calls != 4 {
		t.Errorf("the function was called %d times, want once for each object that was stored", calls)
	}
	value = "green"
	p.Remove("b", nil)
	if values, err := s.Snapshot().Values("color"); err != nil || !slices.Equal(values, []string{"blue"}) {
		t.Errorf("one object has the values %q, %v", values, err)
	}
	p.Remove("c", nil)
	if values, err := s.Snapshot().Values("color"); err != nil || len(values) != 0 {
		t.Errorf("an empty store has the values %q, %v", values, err)
	}
}

func TestAnIndexFunctionMayFail(t *testing.T) {
	broken := map[string]any{"error": errors.New("not yet"), "panic": "not at all", "runtime": nil}
	s := newTestStore(t, "real", cache.Indexers{
		"good": func(any) ([]string, error) { return []string{"all"}, nil },
		"bad": func(obj any) ([]string, error) {
			switch obj {
			case "error":
				if err, ok := broken["error"].(error); ok {
					return []string{"ignored"}, err
				}
			case "panic":
				if why := broken["panic"]; why != nil {
					panic(why)
				}
			case "runtime":
				var none []string
				return none[len(none):1], nil
			}
			return []string{"all"}, nil
		},
	})
	p := s.Part("")
	for _, key := range []string{"error", "fine", "panic", "runtime"} {
		_, _, failed := p.Put(key, key)
		if (len(failed) == 1) != (key != "fine") || key != "fine" && !strings.HasPrefix(failed[0].Error(), `index "bad": `) {
			t.Errorf("%s: %v", key, failed)
		}
	}
	if _, _, failed := p.Put("error", "error"); len(failed) != 1 || !errors.Is(failed[0], broken["error"].(error)) {
		t.Errorf("%v, want %v", failed, broken["error"])
	}
	wantKeys(t, s, "good", "all", "error", "fine", "panic", "runtime")
	wantKeys(t, s, "bad", "all", "fine")
	wantKeys(t, s, "bad", "ignored")
	if failed := s.Failed(); len(failed) != 3 || len(failed[Ref{"", "panic"}]) != 1 {
		t.Errorf("failed: %v", failed)
	}
	if failed := p.Reindex("error"); len(failed) != 1 || len(s.Failed()) != 3 {
		t.Errorf("asked again too early: %v, %v", failed, s.Failed())
	}
	clear(broken)
	before := s.Snapshot()
	for _, key := range []string{"error", "panic", "fine", "no such key"} {
		if failed := p.Reindex(key); failed != nil {
			t.Errorf("%s, asked again: %v", key, failed)
		}
	}
	wantKeys(t, s, "bad", "all", "error", "fine", "panic")
	wantKeys(t, s, "good", "all", "error", "fine", "panic", "runtime")
	if found, _ := before.ByIndex("bad", "all"); found.Len() != 1 {
		t.Errorf("Reindex has changed a snapshot: %q", found.Keys())
	}
	p.Remove("runtime", nil)
	if failed := s.Failed(); len(failed) != 0 {
		t.Errorf("an object that is gone has failed: %v", failed)
	}
	p.Put("runtime", "runtime")
	if p.Drop(); len(s.Failed()) != 0 || s.Snapshot().Entries().Len() != 0 {
		t.Errorf("after Drop %d objects and %v", s.Snapshot().Entries().Len(), s.Failed())
	}
}

func TestAnIndexFunctionMayReturnAnything(t *testing.T) {
	many := make([]string, 10_000)
	for n := range many {
		many[n] = strconv.Itoa(n)
	}
	values := map[string][]string{"many": many, "twice": {"b", "a", "b", "b", "a"}, "empty": {""}, "none": {}, "nil": nil}
	s := newTestStore(t, "real", cache.Indexers{"x": func(obj any) ([]string, error) { return values[obj.(string)], nil }})
	p := s.Part("")
	for round := range 3 {
		for key := range values {
			p.Put(key, key)
		}
		wantKeys(t, s, "x", "9999", "many")
		wantKeys(t, s, "x", "a", "twice")
		wantKeys(t, s, "x", "b", "twice")
		wantKeys(t, s, "x", "", "empty")
		if all, err := s.Snapshot().Values("x"); err != nil || len(all) != 10_003 {
			t.Errorf("round %d: %d values, %v", round, len(all), err)
		}
		if round == 1 {
			p.Put("many", "none")
			p.Put("twice", "empty")
			wantKeys(t, s, "x", "9999")
			wantKeys(t, s, "x", "", "empty", "twice")
		}
	}
	values["down"], values["mixed"] = []string{"z", "y", "x"}, []string{"y", "x", "z"}
	for _, order := range []string{"down", "mixed", "down"} {
		p.Put("key", order)
		for _, value := range values["down"] {
			wantKeys(t, s, "x", value, "key")
		}
	}
	if want := []string{"b", "a", "b", "b", "a"}; !slices.Equal(values["twice"], want) {
		t.Errorf("the slice of the function is %q now", values["twice"])
	}
}

// A function may read the store while it is called. Other readers do not wait for it.
func TestAnIndexFunctionThatBlocksDelaysNoReader(t *testing.T) {
	begun, release := make(chan bool), make(chan bool)
	var s *Store
	s = newTestStore(t, "real", cache.Indexers{"x": func(obj any) ([]string, error) {
		if obj == "slow" {
			begun <- true
			<-release
			found, err := s.Snapshot().ByIndex("x", "all")
			return found.Keys(), err
		}
		return []string{"all"}, nil
	}})
	p := s.Part("")
	p.Put("a", "a")
	done := make(chan bool)
	go func() { p.Put("b", "slow"); close(done) }()
	<-begun
	wantKeys(t, s, "x", "all", "a")
	if _, ok := p.Get("a"); !ok || s.Snapshot().Entries().Len() != 1 {
		t.Error("a reader lacks an object")
	}
	close(release)
	<-done
	wantKeys(t, s, "x", "a", "b")
}

func TestIndexesHaveNamesOfTheirOwn(t *testing.T) {
	f := func(any) ([]string, error) { return []string{"all"}, nil }
	s := newTestStore(t, "real", cache.Indexers{"x": f})
	s.Part("").Put("a", "a")
	for _, indexers := range []cache.Indexers{{"x": f, "y": f}, {"y": f, "z": nil}} {
		if err := s.AddIndexers(indexers); err == nil {
			t.Errorf("%d indexes were taken", len(indexers))
		}
	}
	if _, err := s.Snapshot().ByIndex("y", "all"); err == nil {
		t.Error("there is an index of a call that has failed")
	}
	if _, err := s.Snapshot().Values("y"); err == nil || len(s.Indexers()) != 1 {
		t.Errorf("%d indexes, %v", len(s.Indexers()), err)
	}
	if _, err := New(cache.Indexers{"x": nil}); err == nil {
		t.Error("New has taken a function that is nil")
	}
	before := s.Snapshot()
	if err := s.AddIndexers(cache.Indexers{"y": f}); err != nil {
		t.Fatal(err)
	}
	wantKeys(t, s, "y", "all", "a")
	if _, err := before.ByIndex("y", "all"); err == nil {
		t.Error("a snapshot has an index that was added later")
	}
}

// Nothing of an old state is kept when its snapshot is gone, and an index does not keep old objects.
func TestADroppedSnapshotLeavesNothing(t *testing.T) {
	s := newTestStore(t, "real", cache.Indexers{"tags": byTags})
	p := s.Part("")
	var old []weak.Pointer[thing]
	for n := range 1000 {
		obj := &thing{n, []string{"all", "t" + strconv.Itoa(n%50)}}
		old = append(old, weak.Make(obj))
		p.Put(strconv.Itoa(n), obj)
	}
	v := s.Snapshot()
	for n := range 1000 {
		if n%2 == 0 {
			p.Remove(strconv.Itoa(n), nil)
		} else {
			p.Put(strconv.Itoa(n), &thing{n, []string{"all", "t" + strconv.Itoa(n%40)}})
		}
	}
	living := func() (n int) {
		runtime.GC()
		runtime.GC()
		for _, w := range old {
			if w.Value() != nil {
				n++
			}
		}
		return n
	}
	if n := living(); n != 1000 || v.Entries().Len() != 1000 {
		t.Errorf("the snapshot keeps %d of 1000 objects", n)
	}
	runtime.KeepAlive(v)
	v = nil
	if n := living(); n > 0 {
		t.Errorf("without a snapshot %d of 1000 old objects are alive", n)
	}
	runtime.KeepAlive(s)
}

// nodes counts the nodes of a trie.
func nodes(n *node) int {
	if n == nil {
		return 0
	}
	count := 1
	if n.kids != nil {
		for _, kid := range n.kids {
			count += nodes(kid)
		}
	}
	return count
}

func TestATrieShrinks(t *testing.T) {
	for hash, most := range map[string]int{"real": 5000, "one": 500} {
		s := newTestStore(t, hash, cache.Indexers{"tags": byTags})
		p := s.Part("")
		for n := range most {
			p.Put(strconv.Itoa(n), &thing{n, []string{"all", strconv.Itoa(n)}})
		}
		of := func() *content { return contentOf(s.state.Load().parts, p.hash, "") }
		if n := nodes(of().objects); n < 10 {
			t.Errorf("%s: %d nodes for %d objects", hash, n, most)
		}
		for n := range most - 10 {
			p.Remove(strconv.Itoa(n), nil)
		}
		all := of().membersOf(0, s.hash("all"), "all")
		if n := nodes(of().objects) + nodes(of().tables[0]) + nodes(all); n > 30 && hash == "real" {
			t.Errorf("%s: %d nodes for 10 objects", hash, n)
		}
		for n := range most {
			p.Remove(strconv.Itoa(n), nil)
		}
		if n := nodes(s.state.Load().parts); n != 0 {
			t.Errorf("%s: %d nodes for no object", hash, n)
		}
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// fill puts n objects into a store with an index by namespace, several in each write, and returns how many bytes each
// takes, with its key.
func fill(t *testing.T, n, several int) (s *Store, bytes int64) {
	var namespaces [50]*thing
	for i := range namespaces {
		namespaces[i] = &thing{i, nil}
	}
	before := heap()
	s = newTestStore(t, "real", cache.Indexers{cache.NamespaceIndex: func(obj any) ([]string, error) {
		return []string{"ns-" + strconv.Itoa(obj.(*thing).version)}, nil
	}})
	changes := make([]Change, several)
	for from := 0; from < n; from += several {
		for i := range changes {
			of := (from + i) % len(namespaces)
			changes[i] = Change{Part: s.Part(""), Key: fmt.Sprintf("ns-%d/pod-%d", of, from+i), Object: namespaces[of]}
		}
		s.Apply(changes, nil)
	}
	return s, (heap() - before) / int64(n)
}

func TestAnObjectCosts100Bytes(t *testing.T) {
	if testing.Short() {
		t.Skip("needs 100,000 objects: make test-long")
	}
	s, bytes := fill(t, 100_000, 1)
	if bytes > 100 {
		t.Errorf("%d bytes an object", bytes)
	}
	v, before := s.Snapshot(), heap()
	p, obj := s.Part(""), &thing{}
	for i := range 100_000 {
		p.Put(fmt.Sprintf("ns-%d/pod-%d", i%50, i), obj)
	}
	if kept := (heap() - before) / 100_000; kept > 64 {
		t.Errorf("a snapshot costs %d bytes for each object that was written since", kept)
	}
	runtime.KeepAlive(v)
}

func TestFiveMillionObjects(t *testing.T) {
	if testing.Short() {
		t.Skip("takes minutes and 1 GB: make test-long")
	}
	s, bytes := fill(t, 5_000_000, 1000)
	p := s.Part("")
	for i := 0; i < 5_000_000; i += 1009 {
		if _, ok := p.Get(fmt.Sprintf("ns-%d/pod-%d", i%50, i)); !ok {
			t.Fatalf("object %d is missing", i)
		}
	}
	found, err := s.Snapshot().ByIndex(cache.NamespaceIndex, "ns-7")
	if n := s.Snapshot().Entries().Len(); n != 5_000_000 || err != nil || found.Len() != 100_000 || bytes > 150 {
		t.Errorf("%d objects of %d bytes, %d of 100,000 in a namespace, %v", n, bytes, found.Len(), err)
	}
}

func TestAnEmptyStore(t *testing.T) {
	s := newTestStore(t, "real", cache.Indexers{"tags": byTags})
	s.Apply(nil, nil)
	s.Part("a").Drop()
	if before, existed := s.Part("a").Remove("a", nil); before != nil || existed {
		t.Errorf("removed %v", before)
	}
	wantKeys(t, s, "tags", "all")
	v := s.Snapshot()
	if _, ok := v.Get("a"); ok || v.In("a").Entries().Len()+v.Entries().Len() != 0 || s.state.Load().parts != nil {
		t.Error("it has objects")
	}
	s.Replace(map[Ref]any{{"a", "a"}: &thing{1, nil}}, func() {})
	if s.Replace(nil, func() {}); s.Snapshot().Entries().Len() != 0 || v.Entries().Len() != 0 {
		t.Error("it has objects after Replace")
	}
	for range v.Entries().All() {
		t.Error("it yields an object")
	}
}

func TestAnIterationMayEnd(t *testing.T) {
	s := newTestStore(t, "real", cache.Indexers{"tags": byTags})
	for n := range 1000 {
		s.Part(strconv.Itoa(n%3)).Put(strconv.Itoa(n), &thing{n, []string{"t" + strconv.Itoa(n%50)}})
	}
	found, _ := s.Snapshot().ByIndex("tags", "t1")
	for _, es := range []Entries{s.Snapshot().Entries(), found} {
		n := 0
		for range es.All() {
			if n++; n == 10 {
				break
			}
		}
		if n != 10 {
			t.Errorf("%d objects", n)
		}
	}
}
