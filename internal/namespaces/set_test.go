package namespaces_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
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
		t.Run(name, func(t *testing.T) {
			testkit.EachQueue(t, func(t *testing.T, queue informer.QueueKind) {
				o := opts()
				if o.Queue = queue; o.Durable != nil && queue != informer.QueueRealFIFO {
					return // a Durable needs the other one
				}
				test(t, o)
			})
		})
	}
}

func set(t *testing.T, inf *testkit.Informer, namespaces ...string) {
	t.Helper()
	if err := inf.SetNamespaces(namespaces); err != nil {
		t.Fatal(err)
	}
}

func TestASetOfNamespacesChanges(t *testing.T) {
	eachStore(t, func(t *testing.T, opts options) {
		s := newServer(object("a", "x", "1"), object("a", "y", "1"), object("b", "x", "1"), object("c", "x", "1"))
		inf, r := s.informer(t, opts, "a", "b")
		set(t, inf, "d", "a", "b") // also before Run
		set(t, inf, "a", "b")
		testkit.Start(t, inf)
		time.Sleep(time.Minute)
		before, told := s.client("b").asked(), len(r.Events())

		set(t, inf, "c", "b")
		time.Sleep(time.Minute)
		s.check(t, inf, r, "b", "c")
		var left []string
		for _, e := range r.Events()[told:] {
			switch {
			case e.Type == informer.EventAdded && e.Key() == keyOf("c", "x") && e.Origin == informer.OriginInitial:
			case e.Type == informer.EventDeleted && e.FinalStateUnknown && e.Origin == informer.OriginLeft:
				left = append(left, e.Key().String())
			default:
				t.Errorf("unexpected: %v %v %v", e.Type, e.Key(), e.Origin)
			}
		}
		if slices.Sort(left); fmt.Sprint(left) != "[a/x a/y]" {
			t.Errorf("deletes: %v", left)
		}
		if now := s.client("b").asked(); now != before {
			t.Errorf("b, which stays, was asked: %s, and before %s", now, before)
		}
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
		time.Sleep(time.Minute)
		s.check(t, inf, r, "b", "c")
		if err := inf.WaitForVersion(t.Context(), "a", "1"); err == nil || !strings.Contains(err.Error(), `does not read the namespace "a"`) {
			t.Errorf("WaitForVersion: %v", err)
		}

		set(t, inf)
		time.Sleep(time.Minute)
		s.check(t, inf, r)
		set(t, inf, "a", "c")
		time.Sleep(time.Minute)
		s.check(t, inf, r, "a", "c")
		set(t, inf, "a", "c")
		time.Sleep(time.Minute)
		if asked := s.client("a").asked(); asked != "2 lists, 2 watches" {
			t.Errorf("a was asked: %s", asked)
		}
	})
}

// A set without namespaces has nothing to wait for.
func TestAnEmptySetHasSynced(t *testing.T) {
	eachStore(t, func(t *testing.T, opts options) {
		s := newServer(object("a", "x", "1"))
		inf, r := s.informer(t, opts)
		testkit.Start(t, inf)
		if err := inf.WaitForSync(testkit.Within(t, time.Second)); err != nil {
			t.Error(err)
		}
		if err := inf.WaitForVersion(testkit.Within(t, time.Second), "", "5"); err != nil {
			t.Error(err)
		}
		h := inf.Health()
		encoded, err := h.MarshalJSON()
		if h.Ready() != nil || !h.Synced || !h.Watching || !strings.Contains(string(encoded), `"namespaces":[]`) || err != nil {
			t.Errorf("%s, %v, ready: %v", encoded, err, h.Ready())
		}
		set(t, inf, "a")
		time.Sleep(time.Minute)
		s.check(t, inf, r, "a")
		if e := r.Events(); len(e) != 1 || e[0].Origin != informer.OriginInitial {
			t.Errorf("%v", e)
		}
	})
}

func TestASetThatCannotBeUsedChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(object("a", "x", "1"))
		none := func(namespace string) informer.UntypedClient[*metav1.List] {
			if namespace == "none" {
				return nil
			}
			return s.client(namespace)
		}
		inf, err := informer.NewInNamespaces(none, []string{"a"}, options{Name: "maps"})
		if err != nil {
			t.Fatal(err)
		}
		stop := testkit.Start(t, inf)
		time.Sleep(time.Second)
		for says, namespaces := range map[string][]string{
			`"b" is given twice`:           {"b", "b"},
			`to read all namespaces`:       {""},
			`"b_" is no name`:              {"b_"},
			`"none": the client is nil`:    {"b", "none"},
			`informer maps: SetNamespaces`: {"UPPER"},
		} {
			if err := inf.SetNamespaces(namespaces); err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("got %v, want it to say %q", err, says)
			}
		}
		if n := inf.Health().Namespaces; len(n) != 1 || n[0].Namespace != "a" {
			t.Errorf("the informer reads %v", n)
		}
		stop()
		if err := inf.SetNamespaces(nil); err == nil || !strings.Contains(err.Error(), informer.ErrStopped.Error()) {
			t.Errorf("after the stop: %v", err)
		}
		one, err := informer.NewFrom(s.source, options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := one.SetNamespaces([]string{"a"}); err == nil || !strings.Contains(err.Error(), "reads one source") {
			t.Errorf("an informer over all namespaces: %v", err)
		}
	})
}

func TestFiveThousandNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(object("n7", "x", "1"))
		inf, r := s.informer(t, options{WatchList: informer.WatchListOff})
		testkit.Start(t, inf)
		n := 5000
		if testing.Short() {
			n = 1000
		}
		names := make([]string, n)
		for i := range names {
			names[i] = fmt.Sprint("n", i)
		}
		set(t, inf, names...)
		time.Sleep(time.Minute)
		s.check(t, inf, r, "n7")
		if err := inf.WaitForVersion(testkit.Within(t, time.Minute), names[n-1], "1"); err != nil {
			t.Error(err)
		}
		set(t, inf, names[n/2:]...)
		time.Sleep(time.Minute)
		s.check(t, inf, r)
		if got := len(inf.Health().Namespaces); got != n/2 {
			t.Errorf("%d namespaces", got)
		}
	})
}

// A namespace that is gone is not waited for, although its request has not returned.
func TestANamespaceThatNeverAnswersMayLeave(t *testing.T) {
	eachStore(t, func(t *testing.T, opts options) {
		s := newServer(object("a", "x", "1"), object("b", "x", "1"))
		answer := make(chan struct{})
		hung := func(namespace string) informer.UntypedClient[*metav1.List] {
			if namespace == "b" {
				return deaf{s.client("b"), answer}
			}
			return s.client(namespace)
		}
		opts.ErrorHandler = testkit.Ignore
		inf, err := informer.NewInNamespaces(hung, []string{"a", "b"}, opts)
		if err != nil {
			t.Fatal(err)
		}
		r := &recorder{}
		testkit.AddWatcher(t, inf, r, informer.WatcherOptions{})
		stop := testkit.Start(t, inf)
		time.Sleep(time.Second)
		if inf.HasSynced() {
			t.Error("it has synced without b")
		}
		waits := make(chan error, 1)
		go func() { waits <- inf.WaitForVersion(t.Context(), "b", "1") }()
		time.Sleep(time.Second)
		set(t, inf, "a")
		time.Sleep(time.Second)
		if !inf.HasSynced() {
			t.Error("it waits for b")
		}
		if err := <-waits; err == nil || !strings.Contains(err.Error(), "no longer reads") {
			t.Errorf("WaitForVersion: %v", err)
		}
		s.check(t, inf, r, "a")
		set(t, inf, "a", "b") // while the old request hangs
		time.Sleep(time.Second)
		close(answer)
		time.Sleep(time.Minute)
		s.check(t, inf, r, "a", "b")
		stop()
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

// A blocked watcher gets what has come before a namespace left, its deletes, and what has come since, in this order.
func TestAWatcherThatIsBehindGetsANamespaceInOrder(t *testing.T) {
	eachStore(t, func(t *testing.T, opts options) {
		s := newServer(object("a", "x", "1"), object("b", "x", "1"))
		inf, _ := s.informer(t, opts, "a", "b")
		hold, blocked := make(chan struct{}), &recorder{}
		wait := informer.WatcherFunc[configMap](func(context.Context, informer.Event[configMap]) error { <-hold; return nil })
		testkit.AddWatcher(t, inf, held{blocked, hold}, informer.WatcherOptions{})
		testkit.AddWatcher(t, inf, wait, informer.WatcherOptions{Name: "workers", Workers: 3})
		testkit.AddWatcher(t, inf, wait, informer.WatcherOptions{Name: "merged", MaxBacklog: 1})
		testkit.Start(t, inf)
		time.Sleep(time.Second)
		for n := range 5 {
			s.Apply(object("a", "x", fmt.Sprint(n)))
			s.Apply(object("a", "later", fmt.Sprint(n)))
			time.Sleep(time.Second)
			set(t, inf, "b")
			if n%2 == 0 {
				time.Sleep(time.Second)
			}
			set(t, inf, "b", "a")
			set(t, inf, "b")
			set(t, inf, "a", "b")
			time.Sleep(time.Second)
		}
		close(hold)
		time.Sleep(time.Minute)
		s.check(t, inf, blocked, "a", "b")
	})
}

// held is a watcher that blocks.
type held struct {
	*recorder
	hold <-chan struct{}
}

func (h held) Add(ctx context.Context, e informer.Event[configMap]) error {
	<-h.hold
	return h.recorder.Add(ctx, e)
}

// Changes of the set, of the objects and of the connection come at any time.
func TestTheSetChangesAtAnyTime(t *testing.T) {
	seed := rand.Uint64()
	t.Log("the seed is", seed)
	eachStore(t, func(t *testing.T, opts options) {
		random := rand.New(rand.NewPCG(seed, uint64(opts.Queue)))
		all := []string{"a", "b", "c", "d"}
		s := newServer(object("a", "x", "1"))
		turns := 0
		opts.ErrorHandler = testkit.Ignore
		opts.Transform = func(obj configMap) (configMap, error) {
			if turns++; turns%5 == 0 {
				time.Sleep(time.Duration(turns%7) * time.Millisecond)
			}
			return obj, nil
		}
		opts.Transform = serial(opts.Transform)
		for _, namespace := range all {
			s.client(namespace) // before goroutines ask for it
		}
		inf, r := s.informer(t, opts, "a")
		late := &recorder{}
		testkit.Start(t, inf)
		read := []string{"a"}
		for n := range 300 {
			switch random.IntN(8) {
			case 0, 1:
				random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
				read = slices.Clone(all[:random.IntN(len(all)+1)])
				set(t, inf, read...)
			case 2:
				s.client(all[0]).cut()
			case 3:
				_, _ = s.Delete(keyOf(all[0], fmt.Sprint("o", random.IntN(5))))
			case 4:
				time.Sleep(time.Duration(random.IntN(2000)) * time.Millisecond)
			default:
				s.Apply(object(all[random.IntN(len(all))], fmt.Sprint("o", random.IntN(5)), fmt.Sprint(n)))
			}
			if n == 150 {
				testkit.AddWatcher(t, inf, late, informer.WatcherOptions{})
			}
		}
		time.Sleep(time.Hour)
		s.check(t, inf, r, read...)
		s.check(t, inf, late, read...)
		if !inf.HasSynced() || inf.Health().Queued != 0 {
			t.Errorf("%+v", inf.Health())
		}
	})
}

// Each call replaces the whole set, also beside others, beside the start and beside the stop.
func TestManyCallersChangeTheSet(t *testing.T) {
	eachStore(t, func(t *testing.T, opts options) {
		s := newServer(object("a", "x", "1"), object("b", "x", "1"), object("c", "x", "1"))
		all := []string{"a", "b", "c"}
		for _, namespace := range all {
			s.client(namespace)
		}
		inf, r := s.informer(t, opts, "a")
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
		stop := testkit.Start(t, inf)
		callers.Wait()
		set(t, inf, "c", "a")
		time.Sleep(time.Minute)
		s.check(t, inf, r, "a", "c")
		call()
		stop()
		callers.Wait()
	})
}

// serial returns a function that one goroutine runs at a time. A mutex would stop the clock of the bubble.
func serial(f func(configMap) (configMap, error)) func(configMap) (configMap, error) {
	turn := make(chan struct{}, 1)
	return func(obj configMap) (configMap, error) {
		turn <- struct{}{}
		defer func() { <-turn }()
		return f(obj)
	}
}
