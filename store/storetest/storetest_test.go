package storetest_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/store/storetest"
)

func newStore(*testing.T) cache.Store { return cache.NewStore(cache.MetaNamespaceKeyFunc) }

func TestClientGosStorePasses(t *testing.T) { storetest.Run(t, newStore, storetest.Options{}) }

func TestClientGosIndexerPasses(t *testing.T) {
	storetest.Run(t, func(*testing.T) cache.Store {
		return cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	}, storetest.Options{})
}

func TestStoresOfAnyTypePass(t *testing.T) {
	for name, object := range map[string]func(namespace, name string) informer.AnyObject{
		"typed": func(namespace, name string) informer.AnyObject {
			return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: corev1.PodSpec{NodeName: "node"}}
		},
		"unstructured": func(namespace, name string) informer.AnyObject {
			u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Thing"}}
			u.SetNamespace(namespace)
			u.SetName(name)
			return u
		},
	} {
		t.Run(name, func(t *testing.T) { storetest.Run(t, newStore, storetest.Options{Object: object}) })
	}
}

func TestTheStoreOfInformertestPasses(t *testing.T) {
	storetest.Run(t, func(t *testing.T) cache.Store {
		s := informertest.NewStore(nil)
		t.Cleanup(func() { checkUse(t, s) })
		return s
	}, storetest.Options{})
}

func TestTheDurableStoreOfInformertestPasses(t *testing.T) {
	for name, lost := range map[string]int{"losing nothing": 0, "losing the last two writes": 2, "losing the last hundred writes": 100} {
		t.Run(name, func(t *testing.T) {
			storetest.RunDurable(t, func(t *testing.T) informer.Durable {
				d := informertest.NewDurable()
				d.LoseOnCrash(lost)
				t.Cleanup(func() { checkUse(t, d) })
				return d
			}, storetest.DurableOptions{
				LosesLast: lost > 0,
				Reopen: func(t *testing.T, s informer.Durable) informer.Durable {
					s.(*informertest.Durable).LoseOnCrash(0)
					return reopened(t, s, lost)
				},
				Crash: func(t *testing.T, s informer.Durable) informer.Durable { return reopened(t, s, lost) },
			})
		})
	}
}

// reopened crashes a store and returns the next store, which loses lost writes in a crash.
func reopened(t *testing.T, s informer.Durable, lost int) informer.Durable {
	d := s.(*informertest.Durable).Reopen()
	d.LoseOnCrash(lost)
	checkUse(t, d)
	return d
}

// checkUse fails the test if the suite has used a store as no informer may.
func checkUse(t *testing.T, s interface{ Err() error }) {
	if err := s.Err(); err != nil {
		t.Errorf("the suite has used the store as no informer may: %v", err)
	}
}

func TestADurableIndexerPasses(t *testing.T) {
	newDurable := indexedUnder(keyGiven)
	storetest.RunDurable(t, func(*testing.T) informer.Durable { return newDurable() }, reopening(0))
}

// noted is a store that passes each added object to note.
type noted struct {
	cache.Store
	note func(obj any)
}

func (n noted) Add(obj any) error {
	n.note(obj)
	return n.Store.Add(obj)
}

func TestTheSeedMakesTheHistories(t *testing.T) {
	histories := func(seed uint64) (added []string) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			storetest.Run(t, func(t *testing.T) cache.Store {
				return noted{newStore(t), func(obj any) {
					if strings.Contains(t.Name(), "history") {
						added = append(added, fmt.Sprint(obj))
					}
				}}
			}, storetest.Options{Seed: seed})
		})
		return added
	}
	none, one, again := histories(0), histories(100), histories(100)
	if len(one) == 0 || !slices.Equal(one, again) {
		t.Error("the same seed makes other histories")
	}
	if slices.Equal(none, one) {
		t.Error("another seed makes no difference")
	}
}
