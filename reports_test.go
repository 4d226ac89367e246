package informer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2/ktesting"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
)

var errNoOwner = errors.New("no owner")

func needsOwner(obj configMap) (configMap, error) {
	if obj.Data["value"] == "" {
		return obj, errNoOwner
	}
	return obj, nil
}

// many returns n objects without a value.
func many(n int) (objs []configMap) {
	for i := range n {
		objs = append(objs, object(fmt.Sprint("o", i), ""))
	}
	return objs
}

var byOwner = informer.Indexers[configMap]{"owner": func(obj configMap) ([]string, error) {
	_, err := needsOwner(obj)
	return nil, err
}}

// theLog returns the lines that the default log has, with their keys and values about objects.
func theLog(lines ktesting.Log) (all []string) {
	for _, line := range lines {
		if line.Type == ktesting.LogError {
			all = append(all, line.Err.Error())
		} else if line.Verbosity == 0 {
			all = append(all, fmt.Sprint(line.Message, ": ", line.ParameterKVList))
		}
	}
	return all
}

func TestTheLogOfManyObjectsThatFailIsShort(t *testing.T) {
	for name, opts := range map[string]options{"transform": {Transform: needsOwner}, "index": {Indexers: byOwner}} {
		inBubble(t, name, func(t *testing.T) {
			src := informertest.NewSource(many(2000)...)
			opts.ErrorHandler = informer.Report
			_, lines := startLogged(t, newInformer(t, src, opts))
			for n := range 60 {
				busy := object("o0", "")
				busy.Labels = map[string]string{"n": fmt.Sprint(n)}
				src.Apply(busy)
				if n%5 == 4 {
					src.Expire()
				}
				sleepBubble(time.Minute)
			}
			got := theLog(lines())
			if len(got) > 12 || !strings.HasSuffix(strings.Join(got, "\n"), "no owner (1000 objects fail)") {
				t.Errorf("the log has %d lines: %q", len(got), got)
			}
		})
	}
}

func TestAnObjectIsReportedWhenItBeginsToFail(t *testing.T) {
	for name, opts := range map[string]options{"transform": {Transform: needsOwner}, "index": {Indexers: byOwner}} {
		t.Run(name, func(t *testing.T) {
			eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
				opts.Queue, opts.ErrorHandler = queue, informer.Report
				src := informertest.NewSource(object("a", ""))
				_, lines := startLogged(t, newInformer(t, src, opts))
				said := 0
				expect := func(what string, want ...string) {
					t.Helper()
					sleepBubble(time.Minute)
					all := theLog(lines())
					got := strings.ReplaceAll(strings.Join(all[said:], "\n"), `index "owner": `, "")
					equal(t, what, got, strings.ReplaceAll(strings.Join(want, "\n"), "OP", name))
					said = len(all)
				}
				expect("one object", "OP default/a: no owner")
				src.Apply(object("a", ""))
				src.Expire()
				expect("the same again")
				for _, name := range strings.Split("b c d", " ") {
					src.Apply(object(name, ""))
					synctest.Wait()
				}
				expect("three others", "OP default/b: no owner (2 objects fail)", "OP default/c: no owner (3 objects fail)")
				src.Apply(object("d", "owned"))
				expect("one that was not reported works")
				src.Apply(object("b", "owned"))
				expect("one that was reported works", "An object works again: [operation OP key default/b failing 2]")
				_, _ = src.Delete(keyOf("c"))
				expect("one is deleted")
				src.Apply(object("c", ""))
				expect("another of that name fails", "OP default/c: no owner (2 objects fail)")
				src.Disconnect()
				_, _ = src.Delete(keyOf("c"))
				src.Expire()
				expect("a list lacks it")
				src.Apply(object("a", "owned"))
				expect("the last one works", "No object fails any more: [operation OP key default/a]")
				src.Apply(object("a", ""))
				expect("it fails again", "OP default/a: no owner")
				_, _ = src.Delete(keyOf("a"))
				expect("the last one is deleted", "No object fails any more: [operation OP key default/a]")
			})
		})
	}
}

// Each source has a goroutine of its own. The list of one source does not concern the objects of others.
func TestObjectsThatFailInSeveralNamespacesAreCountedTogether(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src, namespaces := informertest.NewSource[configMap](), []string{"a", "b", "c", "d"}
		var errs errorLog
		inf := must(informer.NewInNamespaces(src.Namespace, namespaces, options{Queue: queue, Transform: needsOwner, ErrorHandler: errs.Handle}))
		fill := func(what, value string, want ...int) {
			t.Helper()
			for n := range 100 {
				obj := object(fmt.Sprint("o", n/4), value)
				obj.Namespace = namespaces[n%4]
				src.Apply(obj)
			}
			sleepBubble(time.Minute)
			got := numbers(t, &errs)["transform no owner"]
			if slices.Sort(got); !slices.Equal(want, got) { // the sources report at the same time
				t.Errorf("%s: reported numbers %v, want %v", what, got, want)
			}
		}
		_, lines := startLogged(t, inf)
		fill("they fail", "", 1, 2, 3, 10, 100)
		src.Expire()
		fill("again", "")
		fill("they work", "owned")
		fill("they fail once more", "", 1, 2, 3, 10, 100)
		equal(t, "times that no object failed any more", strings.Count(strings.Join(theLog(lines()), ""), "No object fails any more"), 1)
	})
}

// numbers returns the numbers of failing objects that were reported, by operation and error.
func numbers(t *testing.T, errs *errorLog) map[string][]int {
	t.Helper()
	all := map[string][]int{}
	for _, err := range errs.Take() {
		var failed *informer.ObjectError
		if !errors.As(err, &failed) {
			t.Errorf("reported %v", err)
			continue
		}
		what := failed.Op + " " + failed.Err.Error()
		all[what] = append(all[what], failed.Failing)
	}
	return all
}

func TestUnusableObjectsAreReportedByNumber(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		var errs errorLog
		store := struct{ cache.Store }{cache.NewStore(cache.MetaNamespaceKeyFunc)}
		secret := func(name string) *corev1.Secret { return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}} }
		for n := range 12 {
			_ = store.Add(secret(fmt.Sprint(n)))
		}
		src := informertest.NewSource[configMap]()
		src.SetFaults(informertest.Faults{ListItems: []runtime.Object{object("", "nameless")}})
		running(t, src, options{Queue: queue, Store: store, ErrorHandler: errs.Handle})
		for range 12 {
			for _, obj := range []runtime.Object{object("", "nameless"), secret("s")} {
				src.Inject(watch.Event{Type: watch.Modified, Object: obj})
			}
			synctest.Wait()
			src.Expire()
			sleepBubble(time.Minute)
		}
		scale := []int{1, 2, 3, 10}
		equal(t, "reported numbers", numbers(t, &errs), map[string][]int{
			"list *v1.ConfigMap has no name": scale, "watch *v1.ConfigMap has no name": scale,
			"watch *v1.Secret is not of the informer's type, *v1.ConfigMap": scale,
			"store *v1.Secret is not of the informer's type, *v1.ConfigMap": scale,
		})
		for n := range 1000 {
			src.Inject(watch.Event{Type: watch.EventType(fmt.Sprint("made up ", n)), Object: object("x", "")})
			synctest.Wait()
		}
		got := errs.Take()
		if last := fmt.Sprint(got[len(got)-1]); len(got) > 105 || !strings.HasSuffix(last, "(100 times so far)") {
			t.Errorf("%d reports, the last one is %s", len(got), last)
		}
	})
}

func TestAnIndexAddedLaterReportsByNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var errs errorLog
		src := informertest.NewSource(many(20)...)
		inf := running(t, src, options{ErrorHandler: errs.Handle})
		err := inf.SharedIndexInformer().AddIndexers(cache.Indexers{"owner": func(any) ([]string, error) { return nil, errNoOwner }})
		if got := errs.Take(); err != nil || len(got) != 4 || !strings.HasSuffix(got[3].Error(), "(10 objects fail)") {
			t.Errorf("%v, reported %q", err, got)
		}
		for n := range 20 {
			_, _ = src.Delete(keyOf(fmt.Sprint("o", n)))
		}
		src.Apply(object("last", ""))
		synctest.Wait()
		if got := errs.Take(); len(got) != 1 || !strings.HasSuffix(got[0].Error(), "no owner") {
			t.Errorf("the next object is reported as %q", got)
		}
	})
}

func TestADropInLogsWhyRunEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var errs errorLog
		opts := options{Durable: informertest.NewDurable(), ErrorHandler: errs.Handle, Name: "second"}
		inf := newInformer(t, informertest.NewSource[configMap](), opts)
		opts.Name = "first"
		informertest.Run(t, newInformer(t, informertest.NewSource[configMap](), opts))
		inf.SharedIndexInformer().RunWithContext(context.Background())
		if got := errs.Take(); len(got) != 1 || !strings.Contains(got[0].Error(), "informer first runs over") {
			t.Errorf("reported %q", got)
		}
	})
}

// The values of an index may depend on more than the object. The informer cannot know when that changes.
func TestAnIndexFunctionThatHasFailedIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		var known atomic.Bool // the owner
		src := informertest.NewSource(object("a", "1"), object("b", "1"))
		inf := must(informer.NewFrom(src, options{Indexers: informer.Indexers[configMap]{"owner": func(obj configMap) ([]string, error) {
			asked.Add(1)
			if !known.Load() && obj.Name == "a" {
				return nil, errors.New("no owner is known")
			}
			return []string{"owner of " + obj.Name}, nil
		}}}))
		informertest.Run(t, inf)
		sleepBubble(time.Hour)
		if n := asked.Load(); n < 60 || n > 75 {
			t.Errorf("in an hour the function was asked %d times, want once a minute, and more often at first", n)
		}
		known.Store(true)
		sleepBubble(2 * time.Minute)
		if found, err := inf.ByIndex("owner", "owner of a"); err != nil || len(found) != 1 || found[0].Name != "a" {
			t.Errorf("the index has %v, %v", found, err)
		}
		last := asked.Load()
		sleepBubble(time.Hour)
		equal(t, "calls of the function that works", asked.Load(), last)
		known.Store(false)
		_ = inf.SharedIndexInformer().GetIndexer().Add(object("a", "2"))
		sleepBubble(time.Minute)
		testkit.AtLeast(t, "calls of the function in a minute after a write of the program", asked.Load()-last, 5)
	})
}

func TestAnIndexFunctionMayPanicForAnObjectFromBeforeRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log errorLog
		inf := newInformer(t, informertest.NewSource(object("a", "1")), options{ErrorHandler: log.Handle,
			Indexers: informer.Indexers[configMap]{"broken": func(configMap) ([]string, error) { panic("no index") }}})
		_ = inf.SharedIndexInformer().GetIndexer().Add(object("a", "1"))
		informertest.Run(t, inf)
		synctest.Wait()
		if got := log.Take(); len(got) == 0 || !strings.Contains(got[0].Error(), "no index") {
			t.Errorf("reported: %v", got)
		}
	})
}

func TestObjectsThatTheProgramPutsIntoTheStoreAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource[configMap]()
		inf := running(t, src, options{ErrorHandler: quiet})
		synctest.Wait()
		_ = inf.SharedIndexInformer().GetIndexer().Add(object("mine", "1"))
		equal(t, "objects, with the one of the program", inf.Health().Objects, 1)
		src.Expire() // the next list does not have it
		sleepBubble(time.Minute)
		src.Apply(object("a", "1"))
		synctest.Wait()
		equal(t, "objects, with the one of the source", inf.Health().Objects, 1)
	})
}

func TestAStopDoesNotWaitForIndexFunctionsThatAreAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var slow atomic.Bool
		inf := newInformer(t, informertest.NewSource(many(1000)...), options{ErrorHandler: quiet,
			Indexers: informer.Indexers[configMap]{"slow": func(configMap) ([]string, error) {
				if slow.Load() {
					<-time.After(time.Second)
				}
				return nil, errors.New("no values")
			}}})
		stop := informertest.Run(t, inf)
		synctest.Wait()
		slow.Store(true)
		sleepBubble(10 * time.Second)
		testkit.AtMost(t, "the time that the stop takes", took(stop), 2*time.Second)
	})
}

func TestASlowIndexFunctionDoesNotDelayAStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inf := must(informer.NewFrom(informertest.NewSource(many(20_000)...), options{Indexers: informer.Indexers[configMap]{"slow": func(configMap) ([]string, error) {
			<-time.After(200 * time.Microsecond)
			return nil, nil
		}}}))
		stop := start(t, inf)
		for range 150 { // after a second, the rest of the list is in the queue
			<-time.After(10 * time.Millisecond)
			if busy := inf.Health().StoreBusy; busy > 100*time.Millisecond {
				t.Fatalf("the store is busy for %v", busy)
			}
		}
		if d := took(stop); d > 100*time.Millisecond || inf.HasSynced() {
			t.Errorf("a stop within the first list takes %v", d)
		}
	})
}

func TestAChangeDoesNotWaitForTheListOfAnotherNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		objs, small, late := many(3000), object("a", "1"), object("b", "1")
		for _, obj := range objs {
			obj.Namespace = "large"
		}
		small.Namespace, late.Namespace = "small", "small"
		src := informertest.NewSource(append(objs, small)...)
		src.FailIn("large", "list", errors.New("down"), 1)
		store := newPlainStore()
		inf := must(informer.NewInNamespaces(src.Namespace, []string{"small", "large"}, options{Store: store, WatchList: informer.WatchListOff, ErrorHandler: quiet}))
		start(t, inf)
		synctest.Wait()
		store.SetFail(func(string, string) error { return errors.New("down") })
		sleepBubble(time.Minute) // the large namespace is listed
		queued := inf.Health().Queued
		src.Apply(late)
		synctest.Wait()
		if now := inf.Health().Queued; queued < 2000 || now != queued+1 {
			t.Errorf("%d changes wait, after %d with a list of 3000 objects", now, queued)
		}
		store.SetFail(nil)
		sleepBubble(time.Minute)
		checkStore(t, inf, src)
	})
}
