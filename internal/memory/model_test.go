package memory

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/tools/cache"
)

// thing is an object with index values of its own.
type thing struct {
	version int
	tags    []string
}

func byTags(obj any) ([]string, error) { return obj.(*thing).tags, nil }

func byVersion(obj any) ([]string, error) {
	return []string{strconv.Itoa(obj.(*thing).version % 7)}, nil
}

// hashes are the hashes of the tests: the real one, one with few values, and one with a single value.
var hashes = map[string]func(string) uint64{
	"real": nil,
	"few":  func(s string) uint64 { return uint64(len(s)+int((s + " ")[len(s)/2])) % 5 },
	"one":  func(string) uint64 { return 1<<63 | 77 },
}

func newTestStore(t testing.TB, hash string, indexers cache.Indexers) *Store {
	s, err := New(indexers)
	if f := hashes[hash]; f != nil {
		s, err = newStore(indexers, f)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// model is what a store should be: objects by source and key.
type model map[string]map[string]*thing

func (m model) clone() model {
	c := model{}
	for source, objs := range m {
		c[source] = maps.Clone(objs)
	}
	return c
}

// check compares a snapshot with the model, by every way to read it.
func (m model) check(t *testing.T, v *Snapshot, indexes ...string) {
	t.Helper()
	total := 0
	for source, objs := range m {
		in := v.In(source)
		if n := in.Entries().Len(); n != len(objs) {
			t.Fatalf("%s: %d entries, want %d", source, n, len(objs))
		}
		total += len(objs)
		for key, obj := range in.Entries().All() {
			if objs[key] != obj {
				t.Fatalf("%s: under %s is %v, want %v", source, key, obj, objs[key])
			}
		}
		for key, want := range objs {
			if obj, ok := in.Get(key); !ok || obj != want {
				t.Fatalf("%s: Get of %s: %v, %t, want %v", source, key, obj, ok, want)
			}
		}
		m.checkIndexes(t, in, source, indexes)
	}
	if n := v.In("none").Entries().Len(); n != 0 {
		t.Fatalf("a source that does not exist has %d entries", n)
	}
	if n := v.Entries().Len(); n != total {
		t.Fatalf("%d entries, want %d", n, total)
	}
}

// checkIndexes compares the indexes of a source with the model.
func (m model) checkIndexes(t *testing.T, v *Snapshot, source string, indexes []string) {
	t.Helper()
	for _, name := range indexes {
		want := map[string][]string{}
		for key, obj := range m[source] {
			values, _ := map[string]cache.IndexFunc{"tags": byTags, "version": byVersion}[name](obj)
			values = slices.Sorted(slices.Values(values)) // readers have the object, too
			for _, value := range slices.Compact(slices.Clone(values)) {
				want[value] = append(want[value], key)
			}
		}
		values, err := v.Values(name)
		if slices.Sort(values); err != nil || !slices.Equal(values, slices.Sorted(maps.Keys(want))) {
			t.Fatalf("%s: values of %s: %q, %v, want %q", source, name, values, err, slices.Sorted(maps.Keys(want)))
		}
		for value, keys := range want {
			found, err := v.ByIndex(name, value)
			if err != nil {
				t.Fatal(err)
			}
			got := found.Keys()
			slices.Sort(got)
			if slices.Sort(keys); !slices.Equal(got, keys) {
				t.Fatalf("%s: by %s=%s: %q, want %q", source, name, value, got, keys)
			}
			for key, obj := range found.All() {
				if obj != m[source][key] {
					t.Fatalf("%s: by %s=%s: %s is an old object", source, name, value, key)
				}
			}
		}
		if found, _ := v.ByIndex(name, "no such value"); found.Len() != 0 {
			t.Fatalf("%s: %d objects have a value that does not exist", source, found.Len())
		}
	}
}

func randomThing(random *rand.Rand, version int) *thing {
	obj := &thing{version: version, tags: []string{"all"}}
	for range random.IntN(4) {
		obj.tags = append(obj.tags, "t"+strconv.Itoa(random.IntN(20)))
	}
	if random.IntN(10) == 0 {
		obj.tags = nil
	}
	if random.IntN(10) == 0 {
		obj.tags = append(obj.tags, "", "")
	}
	return obj
}

// Random operations give what plain maps give, and each snapshot that was taken on the way stays as it was.
func TestAStoreIsItsModel(t *testing.T) {
	operations := map[string]int{"real": 20_000, "few": 4000, "one": 2000}
	for hash := range hashes {
		for seed := range uint64(3) {
			t.Run(fmt.Sprint(hash, seed), func(t *testing.T) {
				n := operations[hash]
				if testing.Short() {
					n /= 4
				}
				play(t, hash, seed, n)
			})
		}
	}
}

func play(t *testing.T, hash string, seed uint64, operations int) {
	random := rand.New(rand.NewPCG(seed, 1))
	s := newTestStore(t, hash, cache.Indexers{"tags": byTags})
	m, indexes := model{}, []string{"tags"}
	type kept struct {
		v       *Snapshot
		m       model
		indexes []string
	}
	var snapshots []kept
	keys := 50 << (3 * seed) // 50, 400, 3,200
	if hash != "real" {
		keys = min(keys, 200)
	}
	pick := func() (source, key string) {
		return "s" + strconv.Itoa(random.IntN(3)), "ns/o" + strconv.Itoa(random.IntN(keys))
	}
	removing := false
	for n := range operations {
		if n%(operations/8) == 0 {
			removing = n/(operations/8)%2 == 1 // grow and shrink
		}
		source, key := pick()
		before, existed := m[source][key]
		switch p, x := s.Part(source), random.IntN(1000); {
		case x < 5:
			snapshots = append(snapshots, kept{s.Snapshot(), m.clone(), slices.Clone(indexes)})
		case x < 7:
			p.Drop()
			delete(m, source)
		case x < 9:
			objects, next := map[Ref]any{}, model{}
			for source, objs := range m {
				for key := range objs {
					if random.IntN(2) == 0 {
						obj := randomThing(random, n)
						objects[Ref{source, key}] = obj
						next.set(source, key, obj, false)
					}
				}
			}
			s.Replace(objects, func() {})
			m = next
		case x == 9 && len(indexes) == 1:
			if err := s.AddIndexers(cache.Indexers{"version": byVersion}); err != nil {
				t.Fatal(err)
			}
			indexes = append(indexes, "version")
		case x < 40:
			var changes []Change
			for range random.IntN(50) {
				source, key := pick()
				changes = append(changes, Change{Part: s.Part(source), Key: key, Object: randomThing(random, n), Delete: random.IntN(2) == 0})
				changes[len(changes)-1].Insert = !changes[len(changes)-1].Delete && random.IntN(2) == 0
			}
			want := m.clone()
			s.Apply(changes, nil)
			for _, c := range changes {
				old, had := want[c.Part.source][c.Key]
				if c.Existed != had || had && c.Before != old {
					t.Fatalf("Apply found %v before %s, want %v", c.Before, c.Key, old)
				}
				if !c.Insert || !had {
					want.set(c.Part.source, c.Key, c.Object.(*thing), c.Delete)
				}
			}
			m = want
		case (x < 300) != removing:
			if got, had := p.Remove(key, nil); had != existed || had && got != before {
				t.Fatalf("Remove returned %v, %t, want %v", got, had, before)
			}
			m.set(source, key, nil, true)
		default:
			obj := randomThing(random, n)
			if existed && random.IntN(2) == 0 {
				obj.tags = before.tags
			}
			if got, had, _ := p.Put(key, obj); had != existed || had && got != before {
				t.Fatalf("Put returned %v, %t, want %v", got, had, before)
			}
			m.set(source, key, obj, false)
			if got, ok := p.Get(key); !ok || got != obj {
				t.Fatalf("Get of %s: %v, want %v", key, got, obj)
			}
		}
		if n%(operations/20) == 0 {
			m.check(t, s.Snapshot(), indexes...)
		}
	}
	for _, k := range snapshots {
		k.m.check(t, k.v, k.indexes...)
	}
	m.check(t, s.Snapshot(), indexes...)
}

func (m model) set(source, key string, obj *thing, gone bool) {
	switch {
	case gone:
		delete(m[source], key)
	case m[source] == nil:
		m[source] = map[string]*thing{key: obj}
	default:
		m[source][key] = obj
	}
}

// One writer changes pairs of objects in one step, and moves them between two values of an index. No reader sees
// one object of a pair without the other in a snapshot, a part of an answer of ByIndex, or a change of a
// snapshot.
func TestASnapshotIsOneState(t *testing.T) {
	for _, hash := range []string{"real", "one"} {
		t.Run(hash, func(t *testing.T) { readWhileWritten(t, hash) })
	}
}

func readWhileWritten(t *testing.T, hash string) {
	const pairs = 100
	rounds := 30
	if testing.Short() {
		rounds = 8
	}
	s := newTestStore(t, hash, cache.Indexers{"tags": byTags})
	a, b := s.Part("a"), s.Part("b")
	key := func(n int) string { return "ns/" + strconv.Itoa(n) }
	values := func(n, version int) []string {
		return []string{"all", "pair" + strconv.Itoa(n), []string{"even", "odd"}[version%2] + strconv.Itoa(n%10)}
	}
	write := func(n, version int) {
		obj := &thing{version, values(n, version)}
		s.Apply([]Change{{Part: a, Key: key(n), Object: obj}, {Part: b, Key: key(n), Object: obj}}, nil)
	}
	for n := range pairs {
		write(n, 0)
	}
	var stop atomic.Bool
	var wg sync.WaitGroup
	check := func(ok bool, format string, args ...any) {
		if !ok && !stop.Swap(true) {
			t.Errorf(format, args...)
		}
	}
	for range 4 {
		wg.Go(func() {
			for !stop.Load() {
				v := s.Snapshot()
				sums := [2]int{}
				for range 2 { // it does not change
					sum := 0
					for n := range pairs {
						x, ok := v.In("a").Get(key(n))
						y, _ := v.In("b").Get(key(n))
						check(ok && x == y, "a snapshot has %v and %v", x, y)
						sum += x.(*thing).version
					}
					sums[0], sums[1] = sums[1], sum
				}
				check(sums[0] == sums[1], "a snapshot changes")
				all, _ := v.ByIndex("tags", "all")
				check(all.Len() == 2*pairs, "%d objects have the value of all, want %d", all.Len(), 2*pairs)
				versions, _ := v.Values("tags")
				check(slices.Contains(versions, "pair0"), "the values are %q", versions)
			}
		})
	}
	for n := range 4 {
		wg.Go(func() {
			last := 0
			for i := n; !stop.Load(); i++ {
				one := i % pairs
				obj, ok := a.Get(key(one))
				check(ok, "an object that is there all the time is not found")
				if one == n {
					check(obj.(*thing).version >= last, "an object gets older")
					last = obj.(*thing).version
				}
				for _, of := range []string{"even", "odd"} {
					value := of + strconv.Itoa(one%10)
					found, _ := s.Snapshot().In("a").ByIndex("tags", value)
					for _, obj := range found.Objects() {
						check(slices.Contains(obj.(*thing).tags, value), "an object of %s has the values %q", value, obj.(*thing).tags)
					}
				}
				all, _ := s.Snapshot().In("a").ByIndex("tags", "all")
				check(all.Len() == pairs, "%d objects of the part, want %d", all.Len(), pairs)
			}
		})
	}
	for version := 1; version <= rounds && !stop.Load(); version++ {
		for n := range pairs {
			write(n, version)
		}
		switch version % 4 {
		case 1:
			objects := map[Ref]any{}
			for n := range pairs {
				obj := &thing{version, values(n, version)}
				objects[Ref{"a", key(n)}], objects[Ref{"b", key(n)}] = obj, obj
			}
			s.Replace(objects, func() {})
		case 2:
			if err := s.AddIndexers(cache.Indexers{"version" + strconv.Itoa(version): byVersion}); err != nil {
				t.Error(err)
			}
		}
	}
	stop.Store(true)
	wg.Wait()
}

// The objects of a value are those of one moment: the writer sets the objects of each value one after the other, so
// that at any moment the versions fall by one at one place at most.
func TestByIndexIsOneMoment(t *testing.T) {
	for _, members := range []int{5, 200} {
		s := newTestStore(t, "real", cache.Indexers{"tags": byTags})
		p := s.Part("")
		write := func(version int) {
			for n := range members {
				p.Put(fmt.Sprintf("%04d", n), &thing{version, []string{"all"}})
			}
		}
		write(0)
		var stop atomic.Bool
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				for !stop.Load() {
					found, _ := s.Snapshot().In("").ByIndex("tags", "all")
					versions := make([]int, members)
					for key, obj := range found.All() {
						n, _ := strconv.Atoi(strings.TrimLeft("0"+key, "0"))
						versions[n] = obj.(*thing).version
					}
					steps := 0
					for n := 1; n < members; n++ {
						steps += versions[n-1] - versions[n]
						if versions[n] > versions[n-1] {
							steps += 10
						}
					}
					if (steps > 1 || found.Len() != members) && !stop.Swap(true) {
						t.Errorf("%d objects with the versions %v", found.Len(), versions)
					}
				}
			})
		}
		for version := range 3000 / members * 2 {
			write(version + 1)
		}
		stop.Store(true)
		wg.Wait()
	}
}
