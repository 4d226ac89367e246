package memory_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer/internal/memory"
	"github.com/customcacheinformer/informer/internal/testkit"
	"github.com/customcacheinformer/informer/store/storetest"
)

func newIndexer(t *testing.T, options memory.IndexerOptions, indexers cache.Indexers) *memory.Indexer {
	s, err := memory.New(indexers)
	testkit.Must(t, err)
	if options.KeyFunc == nil {
		options.KeyFunc = cache.DeletionHandlingMetaNamespaceKeyFunc
	}
	return memory.NewIndexer(s, options)
}

func namespaceOf(key string) string {
	namespace, _, _ := strings.Cut(key, "/")
	return namespace
}

func TestAStoreOfAnInformer(t *testing.T) {
	for name, source := range map[string]func(string) string{"one part": nil, "a part for each namespace": namespaceOf} {
		t.Run(name, func(t *testing.T) {
			storetest.Run(t, func(t *testing.T) cache.Store {
				return newIndexer(t, memory.IndexerOptions{Source: source}, cache.Indexers{})
			}, storetest.Options{})
		})
	}
}

func meta(namespace, name, version string, tags ...string) *metav1.PartialObjectMetadata {
	labels := map[string]string{"tags": strings.Join(tags, ",")}
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, ResourceVersion: version, Labels: labels}}
}

// byTags returns the tags of an object, and an error for anything else.
func byTags(obj any) ([]string, error) {
	if _, ok := obj.(*metav1.PartialObjectMetadata); !ok {
		return nil, errors.New("has no tags")
	}
	return strings.Split(obj.(*metav1.PartialObjectMetadata).Labels["tags"], ","), nil
}

// sides are client-go's indexer and ours, which get the same calls.
type sides struct {
	t            *testing.T
	theirs, ours cache.Indexer
}

// same fails the test unless both give the same answer, apart from its order.
func (s sides) same(what string, ask func(x cache.Indexer) any) {
	s.t.Helper()
	describe := func(x cache.Indexer) string {
		switch answer := ask(x).(type) {
		case []any:
			var all []string
			for _, obj := range answer {
				all = append(all, fmt.Sprintf("%p", obj))
			}
			slices.Sort(all)
			return fmt.Sprint(len(all), answer == nil, all)
		case []string:
			slices.Sort(answer)
			return fmt.Sprintf("%t %q", answer == nil, answer)
		default:
			return fmt.Sprint(answer)
		}
	}
	if theirs, ours := describe(s.theirs), describe(s.ours); theirs != ours {
		s.t.Fatalf("%s: client-go's indexer answers %s, ours %s", what, theirs, ours)
	}
}

func failed(err error) string { return fmt.Sprintf("%T %v", err, err != nil) }

// Every method gives what client-go's gives, after any calls.
func TestAnIndexerAnswersAsClientGoDoes(t *testing.T) {
	operations := 4000
	if testing.Short() {
		operations = 1000
	}
	for _, source := range []func(string) string{nil, namespaceOf} {
		random := rand.New(rand.NewPCG(7, 7))
		indexers := func() cache.Indexers {
			return cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc, "tags": byTags}
		}
		s := sides{t, cache.NewIndexer(cache.DeletionHandlingMetaNamespaceKeyFunc, indexers()), newIndexer(t, memory.IndexerOptions{Source: source}, indexers())}
		object := func(n int) any {
			tags := []string{"all", "t" + strconv.Itoa(random.IntN(9)), "t" + strconv.Itoa(random.IntN(9))}
			return meta([]string{"", "a", "b"}[random.IntN(3)], "o"+strconv.Itoa(random.IntN(60)), strconv.Itoa(n), tags[:1+random.IntN(3)]...)
		}
		for n := range operations {
			obj, version := object(n), strconv.Itoa(n)
			var list []any
			for range random.IntN(30) {
				list = append(list, object(n*100+len(list)))
			}
			switch random.IntN(12) {
			case 0:
				s.same("Add", func(x cache.Indexer) any { return x.Add(obj) })
			case 1, 2, 3:
				s.same("Update", func(x cache.Indexer) any { return x.Update(obj) })
			case 4, 5:
				s.same("Delete", func(x cache.Indexer) any { return x.Delete(obj) })
			case 6:
				key, _ := cache.MetaNamespaceKeyFunc(obj)
				s.same("Delete of a tombstone", func(x cache.Indexer) any { return x.Delete(cache.DeletedFinalStateUnknown{Key: key, Obj: obj}) })
			case 7:
				if n%5 == 0 {
					s.same("Replace", func(x cache.Indexer) any { return x.Replace(slices.Clone(list), version) })
				}
			case 8:
				s.same("Bookmark", func(x cache.Indexer) any { x.Bookmark(version); return nil })
			case 9:
				var txns []cache.Transaction
				for _, obj := range list {
					kind := []cache.TransactionType{cache.TransactionTypeAdd, cache.TransactionTypeUpdate, cache.TransactionTypeDelete}[random.IntN(3)]
					if random.IntN(9) == 0 {
						obj = "no object"
					}
					txns = append(txns, cache.Transaction{Object: obj, Type: kind})
				}
				s.same("Transaction", func(x cache.Indexer) any {
					err := x.(cache.TransactionStore).Transaction(txns...)
					if err == nil {
						return nil
					}
					return fmt.Sprint(err.SuccessfulIndices, err.TotalTransactions, err.Errors)
				})
			case 10:
				for what, write := range map[string]func(x cache.Indexer) error{
					"Add":     func(x cache.Indexer) error { return x.Add(7) },
					"Update":  func(x cache.Indexer) error { return x.Update(7) },
					"Delete":  func(x cache.Indexer) error { return x.Delete(7) },
					"Get":     func(x cache.Indexer) error { _, _, err := x.Get(7); return err },
					"Replace": func(x cache.Indexer) error { return x.Replace([]any{obj, 7}, version) },
				} {
					s.same(what+" of no object", func(x cache.Indexer) any { return fmt.Sprint(failed(write(x)), write(x)) })
				}
			case 11:
				name := "more" + strconv.Itoa(n%8)
				s.same("AddIndexers", func(x cache.Indexer) any { return failed(x.AddIndexers(cache.Indexers{name: byTags})) != failed(nil) })
			}
			if n%5 == 0 || n < 50 {
				s.compare(obj)
			}
		}
	}
}

// compare asks for everything.
func (s sides) compare(obj any) {
	s.t.Helper()
	key, _ := cache.MetaNamespaceKeyFunc(obj)
	s.same("List", func(x cache.Indexer) any { return x.List() })
	s.same("ListKeys", func(x cache.Indexer) any { return x.ListKeys() })
	s.same("LastStoreSyncResourceVersion", func(x cache.Indexer) any { return x.LastStoreSyncResourceVersion() })
	s.same("Resync", func(x cache.Indexer) any { return x.Resync() })
	s.same("Get", func(x cache.Indexer) any {
		found, ok, err := x.Get(obj)
		return fmt.Sprintf("%p %t %v", found, ok, err)
	})
	s.same("GetByKey", func(x cache.Indexer) any {
		found, ok, err := x.GetByKey(key)
		return fmt.Sprintf("%p %t %v", found, ok, err)
	})
	s.same("the names of the indexes", func(x cache.Indexer) any { return slices.Collect(maps.Keys(x.GetIndexers())) })
	for _, name := range []string{cache.NamespaceIndex, "tags", "more1", "none"} {
		s.same("ListIndexFuncValues "+name, func(x cache.Indexer) any { return append([]string{}, x.ListIndexFuncValues(name)...) })
		for _, value := range []string{"", "a", "all", "t1", "none"} {
			s.same("ByIndex "+name, func(x cache.Indexer) any { found, err := x.ByIndex(name, value); return answer(found, err) })
			s.same("IndexKeys "+name, func(x cache.Indexer) any { found, err := x.IndexKeys(name, value); return answer(found, err) })
		}
		for _, like := range []any{obj, &metav1.ObjectMeta{Namespace: "a"}, 7} { // listers ask with an ObjectMeta
			s.same("Index "+name, func(x cache.Indexer) any { found, err := x.Index(name, like); return answer(found, err) })
		}
	}
}

func answer[T any](found []T, err error) any {
	if err != nil {
		return failed(err) == failed(nil)
	}
	return append([]T{}, found...)
}

func TestKeysOfAnIndexAreInOrder(t *testing.T) {
	x := newIndexer(t, memory.IndexerOptions{}, cache.Indexers{"tags": byTags})
	for _, n := range rand.New(rand.NewPCG(1, 1)).Perm(100) {
		testkit.Must(t, x.Add(meta("a", fmt.Sprintf("%03d", n), "1", "all")))
	}
	if keys, err := x.IndexKeys("tags", "all"); err != nil || len(keys) != 100 || !slices.IsSorted(keys) {
		t.Errorf("%q, %v", keys, err)
	}
}

// spoiler returns a function that overwrites an answer.
func spoiler[E any](t *testing.T, mine E) func(found []E, err error) {
	return func(found []E, err error) {
		t.Helper()
		if err != nil || len(found) == 0 {
			t.Errorf("%d found, %v", len(found), err)
		}
		slices.Reverse(found)
		clear(found)
		_ = append(found[:0], mine, mine)
	}
}

// A caller may do with an answer what it likes.
func TestEverySliceBelongsToTheCaller(t *testing.T) {
	x := newIndexer(t, memory.IndexerOptions{}, cache.Indexers{"tags": byTags})
	for n := range 100 {
		testkit.Must(t, x.Add(meta("a", strconv.Itoa(n), "1", "all", "t"+strconv.Itoa(n%5))))
	}
	spoil, spoilKeys := spoiler[any](t, "mine"), spoiler(t, "mine")
	for range 2 {
		spoil(x.List(), nil)
		spoil(x.ByIndex("tags", "all"))
		spoil(x.ByIndex("tags", "t1"))
		spoil(x.Index("tags", meta("a", "1", "1", "t1")))
		spoil(x.Index("tags", meta("a", "1", "1", "t1", "t2")))
		spoilKeys(x.ListKeys(), nil)
		spoilKeys(x.IndexKeys("tags", "t1"))
		spoilKeys(x.ListIndexFuncValues("tags"), nil)
		clear(x.GetIndexers())
	}
	if found, err := x.ByIndex("tags", "t1"); err != nil || len(found) != 20 || len(x.List()) != 100 || slices.Contains(x.List(), any("mine")) {
		t.Errorf("%d objects of 100, %d of 20, %v", len(x.List()), len(found), err)
	}
}

type gauge struct{ set []float64 }

func (g *gauge) Set(v float64) { g.set = append(g.set, v) }

// metrics is a cache.InformerMetricsProvider that counts only versions.
type metrics struct {
	cache.InformerMetricsProvider
	gauge gauge
}

func (m *metrics) NewStoreResourceVersionMetric(cache.InformerNameAndResource) cache.GaugeMetric {
	return &m.gauge
}

func TestAnIndexerMeasuresItsVersion(t *testing.T) {
	name, err := cache.NewInformerName("TestAnIndexerMeasuresItsVersion")
	testkit.Must(t, err)
	defer name.Release()
	id, m := name.WithResource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}), &metrics{}
	x := newIndexer(t, memory.IndexerOptions{Identifier: id, Metrics: m}, cache.Indexers{})
	for _, err := range []error{x.Add(meta("a", "b", "7")), x.Add(meta("a", "c", "no number")), x.Delete(meta("a", "c", "1234567890123456789")), x.Replace(nil, "")} {
		testkit.NoError(t, err)
	}
	if want := []float64{7, 567890123456789, 0}; !slices.Equal(m.gauge.set, want) {
		t.Errorf("%f were measured, want %f", m.gauge.set, want)
	}
	quiet := &metrics{}
	if err := newIndexer(t, memory.IndexerOptions{Metrics: quiet}, cache.Indexers{}).Add(meta("a", "b", "7")); err != nil || quiet.gauge.set != nil {
		t.Errorf("an indexer without a name has measured %f, %v", quiet.gauge.set, err)
	}
}

// client-go's indexer panics for a function that returns an error, and holds its lock.
func TestAFailureOfAnIndexFunctionIsReported(t *testing.T) {
	reports := map[memory.Ref]int{}
	x := newIndexer(t, memory.IndexerOptions{Failed: func(r memory.Ref, errs []error) { reports[r] += len(errs) }}, cache.Indexers{"bad": func(obj any) ([]string, error) {
		if obj.(metav1.Object).GetName() == "bad" {
			return nil, errors.New("bad")
		}
		return []string{"good"}, nil
	}})
	for _, err := range []error{
		x.Add(meta("a", "bad", "1")), x.Add(meta("a", "good", "1")),
		x.Replace([]any{meta("b", "bad", "2"), meta("b", "good", "2")}, "2"),
		x.AddIndexers(cache.Indexers{"none": func(any) ([]string, error) { panic("none") }}),
	} {
		testkit.NoError(t, err)
	}
	if err := x.Transaction(cache.Transaction{Object: meta("c", "bad", "3"), Type: cache.TransactionTypeAdd}); err != nil {
		t.Error(err)
	}
	testkit.Equal(t, "reported", reports, map[memory.Ref]int{{Key: "a/bad"}: 1, {Key: "b/bad"}: 3, {Key: "b/good"}: 1, {Key: "c/bad"}: 2})
	if found, err := x.ByIndex("bad", "good"); err != nil || len(found) != 1 || len(x.List()) != 3 {
		t.Errorf("%d of %d objects, %v", len(found), len(x.List()), err)
	}
}
