package namespaces_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
)

// eachStore runs a test over each kind of store, with each queue, and with lists as a whole and early.
func eachStore(t *testing.T, test func(t *testing.T, opts options)) {
	for name, opts := range map[string]func() options{
		"own": func() options { return options{} },
		"early": func() options {
			return options{Intake: informer.IntakeEarly, PageSize: 2, WatchList: informer.WatchListOff}
		},
		"stream":  func() options { return options{Intake: informer.IntakeEarly, WatchList: informer.WatchListOn} },
		"store":   func() options { return options{Store: cache.NewStore(cache.MetaNamespaceKeyFunc)} },
		"durable": func() options { return options{Durable: informertest.NewDurable()} },
	} {
		testkit.EachQueueOf(t, name, func(t *testing.T, queue informer.QueueKind) {
			o := opts()
			if o.Queue = queue; o.Durable != nil && queue != informer.QueueRealFIFO {
				return // a Durable needs the other one
			}
			test(t, o)
		})
	}
}

func TestASetOfNamespacesChanges(t *testing.T) {
	eachStore(t, func(t *testing.T, opts options) {
		s := newServer(object("a", "x", "1"), object("a", "y", "1"), object("b", "x", "1"), object("c", "x", "1"))
		inf := s.informer(t, opts, "a", "b")
		inf.set("d", "a", "b") // also before Run
		inf.set("a", "b")
		inf.start(time.Minute)
		before, told := s.gate("b").asked(), len(inf.Events())

		inf.set("c", "b")
		inf.checkAfter(time.Minute, "b", "c")
		var left []string
		for _, e := range inf.Events()[told:] {
			switch {
			case e.Type == informer.EventAdded && e.Key() == keyOf("c", "x") && e.Origin == informer.OriginInitial:
			case e.Type == informer.EventDeleted && e.FinalStateUnknown && e.Origin == informer.OriginLeft:
				left = append(left, e.Key().String())
			default:
				t.Errorf("unexpected: %v %v %v", e.Type, e.Key(), e.Origin)
			}
		}
		equal(t, "deletes", testkit.Sorted(left), "[a/x a/y]")
		equal(t, "requests to b, which stays", s.gate("b").asked(), before)
		var names []string
		for _, n := range inf.Health().Namespaces {
			names = append(names, n.Namespace)
		}
		if v := inf.Versions(); fmt.Sprint(names) != "[c b]" || len(v) != 2 || v[0].Namespace != "c" {
			t.Errorf("the informer reads %v, and has the versions %v", names, v)
		}
		for _, namespace := range []string{"a", "b", "c"} {
			s.Apply(object(namespace, "x", "2"))
		}
		inf.checkAfter(time.Minute, "b", "c")
		errorSays(t, inf.WaitForVersion(t.Context(), "a", "1"), `does not read the namespace "a"`)

		inf.set()
		inf.checkAfter(time.Minute)
		inf.set("a", "c")
		inf.checkAfter(time.Minute, "a", "c")
		inf.set("a", "c")
		time.Sleep(time.Minute)
		equal(t, "requests to a", s.gate("a").asked(), "2 lists, 2 watches")
	})
}

// A set without namespaces has nothing to wait for.
func TestAnEmptySetHasSynced(t *testing.T) {
	eachStore(t, func(t *testing.T, opts options) {
		s := newServer(object("a", "x", "1"))
		inf := s.informer(t, opts)
		inf.start(0)
		noError(t, inf.WaitForSync(testkit.Within(t, time.Second)))
		noError(t, inf.WaitForVersion(testkit.Within(t, time.Second), "", "5"))
		h := inf.Health()
		encoded, err := h.MarshalJSON()
		if h.Ready() != nil || !h.Synced || !h.Watching || !strings.Contains(string(encoded), `"namespaces":[]`) || err != nil {
			t.Errorf("%s, %v, ready: %v", encoded, err, h.Ready())
		}
		inf.set("a")
		inf.checkAfter(time.Minute, "a")
		if e := inf.Events(); len(e) != 1 || e[0].Origin != informer.OriginInitial {
			t.Errorf("%v", e)
		}
	})
}

func TestASetThatCannotBeUsedChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(object("a", "x", "1"))
		s.other = map[string]informer.UntypedClient[*metav1.List]{"none": nil}
		inf := s.informer(t, options{Name: "maps"}, "a")
		inf.start(time.Second)
		for says, namespaces := range map[string][]string{
			`"b" is given twice`:           {"b", "b"},
			`to read all namespaces`:       {""},
			`"b_" is not a name`:           {"b_"},
			`"none": the client is nil`:    {"b", "none"},
			`informer maps: SetNamespaces`: {"UPPER"},
		} {
			errorSays(t, inf.SetNamespaces(namespaces), says)
		}
		if n := inf.Health().Namespaces; len(n) != 1 || n[0].Namespace != "a" {
			t.Errorf("the informer reads %v", n)
		}
		inf.stop()
		errorSays(t, inf.SetNamespaces(nil), informer.ErrStopped.Error())
		overAll := testkit.NewInformer(t, s.source, options{})
		errorSays(t, overAll.SetNamespaces([]string{"a"}), "reads one source")
	})
}

func TestFiveThousandNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(object("n7", "x", "1"))
		inf := s.informer(t, options{WatchList: informer.WatchListOff})
		inf.start(0)
		n := testkit.LongOrShort(5000, 1000)
		names := make([]string, n)
		for i := range names {
			names[i] = fmt.Sprint("n", i)
		}
		inf.set(names...)
		inf.checkAfter(time.Minute, "n7")
		noError(t, inf.WaitForVersion(testkit.Within(t, time.Minute), names[n-1], "1"))
		inf.set(names[n/2:]...)
		inf.checkAfter(time.Minute)
		equal(t, "namespaces", len(inf.Health().Namespaces), n/2)
	})
}

// A namespace that is gone is not waited for, although its request has not returned.
func TestANamespaceThatNeverAnswersMayLeave(t *testing.T) {
	eachStore(t, func(t *testing.T, opts options) {
		s := newServer(object("a", "x", "1"), object("b", "x", "1"))
		answer := make(chan struct{})
		s.other = map[string]informer.UntypedClient[*metav1.List]{"b": deaf{s.gate("b"), answer}}
		opts.ErrorHandler = testkit.Ignore
		inf := s.informer(t, opts, "a", "b")
		inf.start(time.Second)
		equal(t, "synced without b", inf.HasSynced(), false)
		waits := make(chan error, 1)
		go func() { waits <- inf.WaitForVersion(t.Context(), "b", "1") }()
		time.Sleep(time.Second)
		inf.set("a")
		time.Sleep(time.Second)
		equal(t, "synced when b has left", inf.HasSynced(), true)
		errorSays(t, <-waits, "no longer reads")
		inf.check("a")
		inf.set("a", "b") // while the old request hangs
		time.Sleep(time.Second)
		close(answer)
		inf.checkAfter(time.Minute, "a", "b")
	})
}

// deaf is a client that does not listen to ctx.
type deaf struct {
	informer.UntypedClient[*metav1.List]
	answer <-chan struct{}
}

func (d deaf) List(ctx context.Context, opts metav1.ListOptions) (*metav1.List, error) {
	<-d.answer
	return d.UntypedClient.List(ctx, opts)
}

func (d deaf) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	<-d.answer
	return d.UntypedClient.Watch(ctx, opts)
}

// A blocked watcher gets the events from before a namespace left, its deletes, and the later events, in this order.
func TestALateWatcherGetsANamespaceInOrder(t *testing.T) {
	eachStore(t, func(t *testing.T, opts options) {
		s := newServer(object("a", "x", "1"), object("b", "x", "1"))
		inf := s.informer(t, opts, "a", "b")
		hold := make(chan struct{})
		wait := func(context.Context, testkit.Event) error { <-hold; return nil }
		blocked := &recorder{Hook: wait}
		testkit.AddWatcher(t, inf.Informer, blocked, informer.WatcherOptions{})
		testkit.AddWatcher(t, inf.Informer, &recorder{Hook: wait}, informer.WatcherOptions{Name: "workers", Workers: 3})
		testkit.AddWatcher(t, inf.Informer, &recorder{Hook: wait}, informer.WatcherOptions{Name: "merged", MaxBacklog: 1})
		inf.start(time.Second)
		for n := range 5 {
			s.Apply(object("a", "x", fmt.Sprint(n)))
			s.Apply(object("a", "later", fmt.Sprint(n)))
			time.Sleep(time.Second)
			inf.set("b")
			if n%2 == 0 {
				time.Sleep(time.Second)
			}
			inf.set("b", "a")
			inf.set("b")
			inf.set("a", "b")
			time.Sleep(time.Second)
		}
		close(hold)
		time.Sleep(time.Minute)
		inf.with(blocked).check("a", "b")
	})
}

// Changes of the set, of the objects and of the connection come at any time.
func TestTheSetChangesAtAnyTime(t *testing.T) {
	seed := rand.Uint64()
	t.Log("the seed is", seed)
	eachStore(t, func(t *testing.T, opts options) {
		random := rand.New(rand.NewPCG(seed, uint64(opts.Queue)))
		all := []string{"a", "b", "c", "d"}
		s := newServer(object("a", "x", "1"))
		var turns atomic.Int64
		opts.ErrorHandler = testkit.Ignore
		opts.Transform = func(obj configMap) (configMap, error) {
			if n := turns.Add(1); n%5 == 0 {
				time.Sleep(time.Duration(n%7) * time.Millisecond)
			}
			return obj, nil
		}
		for _, namespace := range all {
			s.client(namespace) // before goroutines ask for it
		}
		inf := s.informer(t, opts, "a")
		late := &recorder{}
		inf.start(0)
		read := []string{"a"}
		for n := range 300 {
			switch random.IntN(8) {
			case 0, 1:
				random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
				read = slices.Clone(all[:random.IntN(len(all)+1)])
				inf.set(read...)
			case 2:
				s.gate(all[0]).cut()
			case 3:
				_, _ = s.Delete(keyOf(all[0], fmt.Sprint("o", random.IntN(5))))
			case 4:
				time.Sleep(time.Duration(random.IntN(2000)) * time.Millisecond)
			default:
				s.Apply(object(all[random.IntN(len(all))], fmt.Sprint("o", random.IntN(5)), fmt.Sprint(n)))
			}
			if n == 150 {
				testkit.AddWatcher(t, inf.Informer, late, informer.WatcherOptions{})
			}
		}
		inf.checkAfter(time.Hour, read...)
		inf.with(late).check(read...)
		if !inf.HasSynced() || inf.Health().Queued != 0 {
			t.Errorf("%+v", inf.Health())
		}
	})
}

// Each call replaces the whole set, also at the same time as other calls, the start and the stop.
func TestManyCallersChangeTheSet(t *testing.T) {
	eachStore(t, func(t *testing.T, opts options) {
		s := newServer(object("a", "x", "1"), object("b", "x", "1"), object("c", "x", "1"))
		all := []string{"a", "b", "c"}
		for _, namespace := range all {
			s.client(namespace)
		}
		inf := s.informer(t, opts, "a")
		var callers sync.WaitGroup
		call := func() {
			for n := range 4 {
				callers.Go(func() {
					for i := range 50 {
						if err := inf.SetNamespaces(all[(n+i)%3:]); err != nil && !errors.Is(err, informer.ErrStopped) {
							t.Error(err)
						}
						if i%10 == 0 {
							time.Sleep(time.Millisecond)
						}
					}
				})
			}
		}
		call()
		inf.start(0)
		callers.Wait()
		inf.set("c", "a")
		inf.checkAfter(time.Minute, "a", "c")
		call()
		inf.stop()
		callers.Wait()
	})
}
