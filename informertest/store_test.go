package informertest_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer/informertest"
)

// storeOps are all operations of a Store, by their names. Each works on a store that holds a
// and b.
var storeOps = []struct {
	op  string
	key string // "-" if it cannot fail
	do  func(s *informertest.Store) error
}{
	{"get", "default/a", func(s *informertest.Store) error { _, _, err := s.GetByKey("default/a"); return err }},
	{"get", "default/a", func(s *informertest.Store) error { _, _, err := s.Get(configMap("a", "")); return err }},
	{"add", "default/c", func(s *informertest.Store) error { return s.Add(configMap("c", "1")) }},
	{"update", "default/a", func(s *informertest.Store) error { return s.Update(configMap("a", "2")) }},
	{"delete", "default/b", func(s *informertest.Store) error { return s.Delete(configMap("b", "")) }},
	{"resync", "", func(s *informertest.Store) error { return s.Resync() }},
	{"replace", "", func(s *informertest.Store) error { return s.Replace([]any{configMap("d", "1")}, "7") }},
	{"list", "-", func(s *informertest.Store) error { s.List(); return nil }},
	{"list keys", "-", func(s *informertest.Store) error { s.ListKeys(); return nil }},
	{"bookmark", "-", func(s *informertest.Store) error { s.Bookmark("7"); return nil }},
	{"last version", "-", func(s *informertest.Store) error { s.LastStoreSyncResourceVersion(); return nil }},
}

// storeOf returns a store that holds objs, and its inner store.
func storeOf(objs ...*corev1.ConfigMap) (s *informertest.Store, inner cache.Store) {
	inner = cache.NewStore(cache.MetaNamespaceKeyFunc)
	for _, obj := range objs {
		_ = inner.Add(obj)
	}
	return informertest.NewStore(inner), inner
}

// wantStored fails the test unless a store holds exactly want, written as "name=value".
func wantStored(t *testing.T, s cache.Store, want ...string) {
	t.Helper()
	got := map[string]bool{}
	for _, obj := range s.List() {
		cm := obj.(*corev1.ConfigMap)
		got[cm.Name+"="+cm.Data["value"]] = true
	}
	wanted := map[string]bool{}
	for _, w := range want {
		wanted[w] = true
	}
	if diff := cmp.Diff(wanted, got); diff != "" {
		t.Fatalf("the store (-want +got):\n%s", diff)
	}
}

func TestAStoreWorksUntilItIsMadeToFail(t *testing.T) {
	s := informertest.NewStore(nil)
	a := configMap("a", "1")
	for _, err := range []error{
		s.Add(a), s.Add(configMap("b", "1")), s.Add(configMap("c", "1")),
		s.Update(configMap("b", "2")), s.Delete(configMap("c", "")), s.Resync(),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	wantStored(t, s, "a=1", "b=2")
	for name, get := range map[string]func() (any, bool, error){
		"by key":    func() (any, bool, error) { return s.GetByKey("default/a") },
		"by object": func() (any, bool, error) { return s.Get(configMap("a", "")) },
	} {
		if got, exists, err := get(); got != a || !exists || err != nil {
			t.Errorf("get %s: %v, %v, %v", name, got, exists, err)
		}
	}
	if got, exists, err := s.GetByKey("default/c"); got != nil || exists || err != nil {
		t.Errorf("get what is not there: %v, %v, %v", got, exists, err)
	}
	if err := s.Replace([]any{configMap("d", "1")}, "7"); err != nil {
		t.Fatal(err)
	}
	if keys := s.ListKeys(); len(keys) != 1 || keys[0] != "default/d" {
		t.Errorf("after a replace the keys are %q", keys)
	}
	if err := s.Err(); err != nil {
		t.Error(err)
	}
}

func TestAStoreForwardsToItsInnerStoreButIsNotAnIndexer(t *testing.T) {
	inner := &versioned{Store: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})}
	_ = inner.Add(configMap("a", "1"))
	var s cache.Store = informertest.NewStore(inner)
	if _, is := s.(cache.Indexer); is {
		t.Error("it is an Indexer")
	}
	wantStored(t, s, "a=1")
	s.Bookmark("7")
	if got := s.LastStoreSyncResourceVersion(); got != "7" {
		t.Errorf("its version is %q", got)
	}
	if err := s.Resync(); !errors.Is(err, errResync) {
		t.Errorf("its resync returned %v", err)
	}
}

var errResync = errors.New("resync of the store behind")

// versioned is a store that remembers bookmarks; client-go's stores do so only if a feature is
// on.
type versioned struct {
	cache.Store
	version string
}

func (v *versioned) Bookmark(rv string)                   { v.version = rv }
func (v *versioned) LastStoreSyncResourceVersion() string { return v.version }
func (v *versioned) Resync() error                        { return errResync }

func TestAStoreRefusesToBeUsedWrongly(t *testing.T) {
	tombstone := cache.DeletedFinalStateUnknown{Key: "default/a", Obj: configMap("a", "1")}
	for _, c := range []struct {
		name string
		do   func(s *informertest.Store) error
		want []string // texts that the error must contain
	}{
		{"add of what is there", func(s *informertest.Store) error { return s.Add(configMap("a", "2")) }, []string{"add", "default/a", "exists"}},
		{"update of what is not", func(s *informertest.Store) error { return s.Update(configMap("b", "2")) }, []string{"update", "default/b", "not exist"}},
		{"delete of what is not", func(s *informertest.Store) error { return s.Delete(configMap("b", "2")) }, []string{"delete", "default/b", "not exist"}},
		{"add of a tombstone", func(s *informertest.Store) error { return s.Add(tombstone) }, []string{"add", "default/a", "DeletedFinalStateUnknown"}},
		{"update to a tombstone", func(s *informertest.Store) error { return s.Update(tombstone) }, []string{"update", "default/a", "DeletedFinalStateUnknown"}},
		{"delete of a tombstone", func(s *informertest.Store) error { return s.Delete(tombstone) }, []string{"delete", "default/a", "DeletedFinalStateUnknown"}},
		{"get of a tombstone", func(s *informertest.Store) error { _, _, err := s.Get(tombstone); return err }, []string{"get", "default/a", "DeletedFinalStateUnknown"}},
		{"delete of a key", func(s *informertest.Store) error { return s.Delete(cache.ExplicitKey("default/a")) }, []string{"delete", "ExplicitKey"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, inner := storeOf(configMap("a", "1"))
			s.FailAfter(func(op, key string) error { t.Errorf("FailAfter is asked about %s of %s", op, key); return nil })
			err := c.do(s)
			for _, want := range c.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, which does not contain %q", err, want)
				}
			}
			wantStored(t, inner, "a=1")
			_ = s.Delete(configMap("another", ""))
			if got := s.Err(); !errors.Is(got, err) {
				t.Errorf("the first error is remembered as %v", got)
			}
		})
	}
}

func TestTwoWritesOfAnObjectAtOnceAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, inner := storeOf(configMap("a", "1"), configMap("b", "1"))
		release := s.Hang()
		hung, refused, other := make(chan error, 1), make(chan error, 1), make(chan error, 1)
		go func() { hung <- s.Update(configMap("a", "2")) }()
		synctest.Wait()
		go func() { refused <- s.Delete(configMap("a", "")) }()
		go func() { other <- s.Delete(configMap("b", "")) }()
		synctest.Wait()
		release()
		if err := <-refused; err == nil || !strings.Contains(err.Error(), "delete") || !strings.Contains(err.Error(), "under way") {
			t.Errorf("the second write returned %v", err)
		}
		if err := errors.Join(<-hung, <-other); err != nil {
			t.Error(err)
		}
		wantStored(t, inner, "a=2")
		if err := s.Update(configMap("a", "3")); err != nil {
			t.Errorf("when the first was done: %v", err)
		}
	})
}

func TestFailPreventsAnOperationAndFailAfterDoesNot(t *testing.T) {
	mine := errors.New("mine")
	for _, o := range storeOps {
		if o.key == "-" {
			continue
		}
		t.Run(o.op, func(t *testing.T) {
			s, inner := storeOf(configMap("a", "1"), configMap("b", "1"))
			var before, after []string
			s.Fail(func(op, key string) error { before = append(before, op+" "+key); return mine })
			s.FailAfter(func(op, key string) error { after = append(after, op+" "+key); return mine })
			if err := o.do(s); !errors.Is(err, mine) || len(after) > 0 {
				t.Errorf("with Fail it returned %v, and FailAfter was asked %d times", err, len(after))
			}
			wantStored(t, inner, "a=1", "b=1")
			s.Fail(nil)
			if err := o.do(s); !errors.Is(err, mine) {
				t.Errorf("with FailAfter it returned %v", err)
			}
			wantStored(t, inner, map[string][]string{
				"get":     {"a=1", "b=1"},
				"add":     {"a=1", "b=1", "c=1"},
				"update":  {"a=2", "b=1"},
				"delete":  {"a=1"},
				"resync":  {"a=1", "b=1"},
				"replace": {"d=1"},
			}[o.op]...)
			want := []string{o.op + " " + o.key}
			if diff := cmp.Diff([][]string{want, want}, [][]string{before, after}); diff != "" {
				t.Errorf("the functions were called for (-want +got):\n%s", diff)
			}
			if item, exists, err := s.GetByKey("default/a"); item != nil || exists || !errors.Is(err, mine) {
				t.Errorf("a get that fails after its effect returned %v, %v, %v", item, exists, err)
			}
			s.FailRandomly(1, 0)
			if _, _, err := s.GetByKey("default/a"); err != nil {
				t.Errorf("FailRandomly has not taken the place of FailAfter: %v", err)
			}
			if err := s.Err(); err != nil {
				t.Errorf("nothing was used wrongly, but %v", err)
			}
		})
	}
}

func TestErrReportsABrokenInnerStore(t *testing.T) {
	broken, _ := storeOf()
	down := errors.New("down")
	broken.Fail(func(string, string) error { return down })
	s := informertest.NewStore(broken)
	if err := s.Add(configMap("a", "1")); !errors.Is(err, down) {
		t.Errorf("add returned %v", err)
	}
	if _, _, err := s.GetByKey("default/a"); !errors.Is(err, down) {
		t.Errorf("get returned %v", err)
	}
	if err := s.Err(); err != nil {
		t.Errorf("nothing was used wrongly, but %v", err)
	}
}

func TestTheFunctionsOfATestMayUseTheStore(t *testing.T) {
	s, inner := storeOf(configMap("a", "1"))
	s.Fail(func(_, key string) error {
		if key != "default/a" {
			return nil
		}
		s.Fail(nil)
		return s.Add(configMap(fmt.Sprint("b", s.Calls("update")), "1"))
	})
	if err := s.Update(configMap("a", "2")); err != nil {
		t.Error(err)
	}
	wantStored(t, inner, "a=2", "b1=1")
}

// outcomes writes n objects and returns for each whether it is stored, and whether the store
// reported success.
func outcomes(s *informertest.Store, inner cache.Store, n int) []string {
	var got []string
	for i := range n {
		name := fmt.Sprint("o", i)
		err := s.Add(configMap(name, ""))
		_, stored, _ := inner.GetByKey("default/" + name)
		got = append(got, fmt.Sprintf("stored: %v, failed: %v", stored, err != nil))
	}
	return got
}

func TestHalfOfTheFailuresByChanceComeAfterTheEffect(t *testing.T) {
	const n = 10_000
	for _, probability := range []float64{0, 0.3, 1} {
		s, inner := storeOf()
		s.FailRandomly(1, probability)
		count := map[string]int{}
		for _, outcome := range outcomes(s, inner, n) {
			count[outcome]++
		}
		for outcome, share := range map[string]float64{
			"stored: true, failed: false":  1 - probability,
			"stored: false, failed: true":  probability / 2,
			"stored: true, failed: true":   probability / 2,
			"stored: false, failed: false": 0,
		} {
			if got := float64(count[outcome]) / n; got < share-0.02 || got > share+0.02 {
				t.Errorf("with probability %v, %v of the operations end in %q, want %v", probability, got, outcome, share)
			}
		}
	}
}

func TestFailuresByChanceDependOnTheSeedOnly(t *testing.T) {
	run := func(seed uint64) []string {
		s, inner := storeOf()
		s.FailRandomly(seed, 0.5)
		return outcomes(s, inner, 100)
	}
	if diff := cmp.Diff(run(1), run(1)); diff != "" {
		t.Errorf("the same seed (-first +second):\n%s", diff)
	}
	if cmp.Equal(run(1), run(2)) {
		t.Error("another seed makes no difference")
	}
}

func TestOperationsHangUntilAllReleases(t *testing.T) {
	for _, o := range storeOps {
		t.Run(o.op, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, _ := storeOf(configMap("a", "1"), configMap("b", "1"))
				release, releaseToo := s.Hang(), s.Hang()
				done := make(chan error, 1)
				go func() { done <- o.do(s) }()
				hangs := func() bool {
					time.Sleep(time.Hour) // time passes only if all are durably blocked
					return len(done) == 0 && s.Calls(o.op) == 1
				}
				if !hangs() {
					t.Fatal("it does not hang")
				}
				release()
				release()
				if !hangs() {
					t.Fatal("it does not hang after one release of two")
				}
				begin := time.Now()
				releaseToo()
				if err := <-done; err != nil || time.Since(begin) > 0 {
					t.Errorf("it returned %v after %v", err, time.Since(begin))
				}
			})
		})
	}
}

func TestOperationsTakeTheGivenTimeAtTheSameTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := storeOf(configMap("a", "1"), configMap("b", "1"))
		s.Delay(time.Minute)
		begin := time.Now()
		var all sync.WaitGroup
		for _, o := range storeOps {
			if o.op == "replace" {
				continue // it would remove the objects that the others need
			}
			all.Go(func() {
				if err := o.do(s); err != nil || time.Since(begin) != time.Minute {
					t.Errorf("%s: %v after %v", o.op, err, time.Since(begin))
				}
			})
		}
		all.Wait()
		s.Delay(0)
		s.List()
		if took := time.Since(begin); took != time.Minute {
			t.Errorf("after %v", took)
		}
	})
}

func TestHealEndsAllFailuresOfAStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, inner := storeOf()
		s.FailRandomly(1, 1)
		s.Delay(time.Minute)
		release := s.Hang()
		defer release()
		done := make(chan error)
		go func() { done <- s.Add(configMap("a", "1")) }()
		synctest.Wait()
		begin := time.Now()
		s.Heal()
		if err := <-done; err != nil || time.Since(begin) > 0 {
			t.Errorf("add returned %v after %v", err, time.Since(begin))
		}
		wantStored(t, inner, "a=1")
	})
}

func TestCallsCountsEachOperationAlsoIfItFails(t *testing.T) {
	s, _ := storeOf(configMap("a", "1"), configMap("b", "1"))
	want := map[string]int{"nonsense": 0}
	for _, o := range storeOps {
		s.Fail(func(string, string) error { return errors.New("mine") })
		_ = o.do(s)
		s.Fail(nil)
		_ = o.do(s)
		want[o.op] += 2
	}
	for op, n := range want {
		if got := s.Calls(op); got != n {
			t.Errorf("%d calls of %q, want %d", got, op, n)
		}
	}
}
