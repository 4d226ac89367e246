package storetest

import (
	"fmt"
	"maps"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
)

// model is the state of a Durable, or the state it should have. It holds descriptions of
// objects.
type model struct {
	bookmark   string
	objects    map[string]string   // by key
	tombstones map[identity]string // a faulty store may have two of one identity, see double
	double     []string
}

// identity identifies a tombstone.
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

func (m *model) put(obj metav1.Object) { m.objects[keyOf(obj)] = describe(obj) }

func (m *model) remove(key string) { delete(m.objects, key) }

func (m *model) apply(changes []cache.Transaction, bookmark string) {
	for _, change := range changes {
		obj, err := meta.Accessor(change.Object)
		if err != nil {
			panic(err)
		}
		if change.Type != cache.TransactionTypeDelete {
			m.put(obj)
			continue
		}
		m.remove(keyOf(obj))
		m.tombstones[identity{keyOf(obj), obj.GetUID()}] = describe(obj)
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

// lines describes the whole state, one item per bookmark, object and tombstone.
func (m *model) lines() []string {
	lines := []string{fmt.Sprintf("the bookmark %q", m.bookmark)}
	for key, obj := range m.objects {
		lines = append(lines, "under "+strconv.Quote(key)+" "+obj)
	}
	for _, obj := range m.tombstones {
		lines = append(lines, "the tombstone "+obj)
	}
	return append(lines, m.double...)
}

func (m *model) difference(got *model) string { return difference(m.lines(), got.lines()) }

func (m *model) same(other *model) bool { return m.difference(other) == "" }

// durable returns the store as a Durable.
func (c *checker) durable() informer.Durable { return c.store.(informer.Durable) }

func adding(obj informer.AnyObject) cache.Transaction {
	return cache.Transaction{Type: cache.TransactionTypeAdd, Object: obj}
}

func updating(obj informer.AnyObject) cache.Transaction {
	return cache.Transaction{Type: cache.TransactionTypeUpdate, Object: obj}
}

func deleting(obj any) cache.Transaction {
	return cache.Transaction{Type: cache.TransactionTypeDelete, Object: obj}
}

// apply applies changes to the store and to m, the model of it.
func (c *checker) apply(m *model, bookmark string, changes ...cache.Transaction) {
	c.Helper()
	if err := c.durable().Apply(c.Context(), changes, bookmark); err != nil {
		c.Fatalf("Apply of %s: %v", describeChanges(changes, bookmark), err)
	}
	m.apply(changes, bookmark)
}

// forget removes tombstones from the store and from m, the model of it.
func (c *checker) forget(m *model, tombstones map[string][]types.UID) {
	c.Helper()
	if err := c.durable().Forget(c.Context(), tombstones); err != nil {
		c.Fatalf("Forget of %v: %v", tombstones, err)
	}
	m.forget(tombstones)
}

// readModel reads the state of the store.
func (c *checker) readModel() *model {
	c.Helper()
	m := newModel()
	var err error
	if m.bookmark, err = c.durable().Resume(c.Context()); err != nil {
		c.Fatalf("Resume: %v", err)
	}
	for _, obj := range c.scan(500) {
		m.objects[keysOf([]any{obj})[0]] = describe(obj)
	}
	tombstones, err := c.durable().Tombstones(c.Context())
	if err != nil {
		c.Fatalf("Tombstones: %v", err)
	}
	for _, raw := range tombstones {
		obj, err := meta.Accessor(raw)
		if err != nil {
			c.Fatalf("Tombstones returned a %T", raw)
		}
		id := identity{keyOf(obj), obj.GetUID()}
		if m.tombstones[id] != "" {
			m.double = append(m.double, "the tombstone "+describe(obj))
		}
		m.tombstones[id] = describe(obj)
	}
	return m
}

// wantModel ends the check with a failure unless the store has the state m. It also compares
// the results of GetByKey, List and ListKeys.
func (c *checker) wantModel(m *model) {
	c.Helper()
	if d := m.difference(c.readModel()); d != "" {
		c.Fatalf("the store: %s", d)
	}
	var keys, objs []string
	for key, obj := range m.objects {
		keys, objs = append(keys, key), append(objs, obj)
		if len(keys) > 50 {
			continue // reading one by one takes long
		}
		if got := describe(c.get(key)); got != obj {
			c.Errorf("GetByKey(%q) returned %s, want %s", key, got, obj)
		}
	}
	c.same("List", objs, describeAll(c.store.List()))
	c.same("ListKeys", keys, c.store.ListKeys())
}

// describeChanges describes the arguments of an Apply.
func describeChanges(changes []cache.Transaction, bookmark string) string {
	var all []string
	for _, change := range changes {
		all = append(all, strings.ToLower(string(change.Type))+" "+describe(change.Object))
	}
	return fmt.Sprintf("[%s] with the bookmark %q", short(all), bookmark)
}

// number returns a version as a number, or -1 if it is none.
func number(rv string) int64 {
	n, err := strconv.ParseInt(rv, 10, 64)
	if err != nil {
		return -1
	}
	return n
}
