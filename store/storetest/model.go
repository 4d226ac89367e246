package storetest

import (
	"fmt"
	"maps"
	"strconv"

	"k8s.io/apimachinery/pkg/types"

	"github.com/customcacheinformer/informer"
)

// model is a state of a Durable, as it is or should be. It has descriptions of objects,
// see describe.
type model struct {
	bookmark   string
	objects    map[string]string   // by key
	tombstones map[identity]string // by key and UID
	double     []string            // further tombstones with the same key and UID, in a faulty store
}

type identity struct {
	key string
	uid types.UID
}

func newModel() *model {
	return &model{objects: map[string]string{}, tombstones: map[identity]string{}}
}

func (m *model) clone() *model {
	return &model{bookmark: m.bookmark, objects: maps.Clone(m.objects), tombstones: maps.Clone(m.tombstones)}
}

func (m *model) put(e informer.Entry) { m.objects[e.Key] = describe(e.Object) }

func (m *model) apply(changes []informer.Change, bookmark string) {
	for _, change := range changes {
		if !change.Delete {
			m.put(change.Entry)
			continue
		}
		delete(m.objects, change.Key)
		if change.NoTombstone {
			continue
		}
		m.tombstones[identity{change.Key, change.Object.GetUID()}] = describe(change.Object)
	}
	m.bookmark = bookmark
}

func (m *model) forget(tombstones map[string][]types.UID) {
	for key, uids := range tombstones {
		for _, uid := range uids {
			delete(m.tombstones, identity{key, uid})
		}
	}
}

// lines describes the whole state, with one item for the bookmark, each object and each
// tombstone.
func (m *model) lines() []string {
	lines := []string{fmt.Sprintf("the bookmark %q", m.bookmark)}
	for key, obj := range m.objects {
		lines = append(lines, "under "+strconv.Quote(key)+" "+obj)
	}
	for id, obj := range m.tombstones {
		lines = append(lines, "under "+strconv.Quote(id.key)+" the tombstone "+obj)
	}
	return append(lines, m.double...)
}

func (m *model) difference(got *model) string { return difference(m.lines(), got.lines()) }

func (m *model) same(other *model) bool { return m.difference(other) == "" }

func (c *checker) apply(m *model, bookmark string, changes ...informer.Change) {
	c.Helper()
	if err := c.lasting().Apply(c.Context(), changes, bookmark); err != nil {
		c.Fatalf("Apply of %s: %v", describeChanges(changes, bookmark), err)
	}
	m.apply(changes, bookmark)
}

func (c *checker) forget(m *model, tombstones map[string][]types.UID) {
	c.Helper()
	if err := c.lasting().Forget(c.Context(), tombstones); err != nil {
		c.Fatalf("Forget of %v: %v", tombstones, err)
	}
	m.forget(tombstones)
}

func (c *checker) readModel() *model {
	c.Helper()
	m := newModel()
	var err error
	if m.bookmark, err = c.lasting().Resume(c.Context()); err != nil {
		c.Fatalf("Resume: %v", err)
	}
	for _, e := range c.scan(500) {
		m.put(e)
	}
	tombstones, err := c.lasting().Tombstones(c.Context())
	if err != nil {
		c.Fatalf("Tombstones: %v", err)
	}
	for _, e := range tombstones {
		id := identity{e.Key, e.Object.GetUID()}
		if m.tombstones[id] != "" {
			m.double = append(m.double, "the tombstone "+describe(e.Object))
		}
		m.tombstones[id] = describe(e.Object)
	}
	return m
}

// wantModel ends the check with a failure unless the store has the state m. It also
// checks the results of Get for some objects.
func (c *checker) wantModel(m *model) {
	c.Helper()
	if d := m.difference(c.readModel()); d != "" {
		c.Fatalf("the store: %s", d)
	}
	n := 0
	for key, obj := range m.objects {
		if n++; n > 50 {
			break // reading one by one takes long
		}
		if got := describe(c.get(key)); got != obj {
			c.Errorf("Get of %q returned %s, want %s", key, got, obj)
		}
	}
}

func describeChanges(changes []informer.Change, bookmark string) string {
	var all []string
	for _, change := range changes {
		what := "put "
		if change.Delete {
			what = "delete "
		}
		all = append(all, what+describe(change.Object)+" under "+strconv.Quote(change.Key))
	}
	return fmt.Sprintf("[%s] with the bookmark %q", short(all), bookmark)
}

// number returns a version as a number, or -1 if it is not a number.
func number(rv string) int64 {
	n, err := strconv.ParseInt(rv, 10, 64)
	if err != nil {
		return -1
	}
	return n
}
