package enqueue_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/enqueue"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
)

var (
	histories   = flag.Int("histories", 1000, "how many histories to play; with -short a twentieth")
	historySeed = flag.Uint64("history-seed", 0, "play only the history of this seed")
	historyFile = flag.String("history-file", "", "play only the history that a failure has printed into this file")
)

// controllersOf are the controllers of each process of a history. Their sources are of the same
// informer.
var controllersOf = []struct {
	name    string
	sources []string
	opts    enqueue.Options
}{
	{"objects and owners", []string{"For", "Owns"}, enqueue.Options{Workers: 2}},
	{"labels and owners", []string{"Watches", "Owns"}, enqueue.Options{MaxAttempts: 2, CallTimeout: 2 * time.Second}},
	{elected, []string{"For"}, enqueue.Options{DrainTimeout: 3 * time.Second, MaxAttempts: 3}},
}

// elected is the controller with an election. It wants only updates with a new generation.
const elected = "objects"

// history is a program that is stopped, or crashes, and is started again, while objects come and
// go. Its controllers and watchers fail at times.
type history struct {
	t      *testing.T
	mode   informer.WatchListMode
	source *informertest.Source[*corev1.Pod]
	ledger *ledger
	played []string // operations

	pods        *podInformer
	group       *informer.Group
	controllers map[string]*enqueue.Controller[key]
	started     time.Time
	end         func()   // ends the program; nil if it does not run
	lose        func()   // loses the election, once
	overdue     string   // the key for which each call of the first controller asks at once
	atOnce      int      // such calls
	under       sync.Map // the ctxs of the calls of the elected controller
}

// percent reports true with this probability.
func percent(random *rand.Rand, p int) bool { return random.IntN(100) < p }

// No delete is lost, whatever happens: see ledger.
func TestInNoHistoryIsADeleteLost(t *testing.T) {
	first, n, plan := uint64(1), *histories, planOf
	if testing.Short() {
		n /= 20
	}
	if *historySeed != 0 {
		first, n = *historySeed, 1
	}
	if *historyFile != "" {
		seed, lines := readHistory(t, *historyFile)
		first, n, plan = seed, 1, func(uint64) []string { return lines }
	}
	var played, deletes, exempt, kept, dying, losses, atOnce int
	for seed := first; seed < first+uint64(n); seed++ {
		testkit.InBubble(t, fmt.Sprint(seed), func(t *testing.T) {
			h := newHistory(t, seed)
			defer h.report(seed)
			h.play(plan(seed))
			played++
			l := h.ledger
			deletes, exempt, kept = deletes+l.deletes, exempt+l.exempt, kept+l.kept
			dying, losses, atOnce = dying+l.checked, losses+l.losses, atOnce+h.atOnce
		})
	}
	t.Logf("%d deletes, of which the store has lost %d with their objects, and processes found %d tombstones", deletes, exempt, kept)
	t.Logf("%d looks at objects that are being deleted, %d lost leases in the middle of calls, %d calls that asked at once, for ever", dying, losses, atOnce)
	// A short run may see none of what is rare: a store loses a delete with its object in one of a hundred histories.
	if played >= 1000 && (deletes < 5*played || kept < played || dying < played/4 || losses < played/50 || atOnce < played || exempt == 0) {
		t.Error("too little has happened")
	}
}

func newHistory(t *testing.T, seed uint64) *history {
	return &history{
		t: t, mode: []informer.WatchListMode{informer.WatchListOn, informer.WatchListOff}[seed%2],
		source: informertest.NewSource[*corev1.Pod](), ledger: newLedger(t, seed),
	}
}

func (h *history) play(plan []string) {
	for _, line := range plan {
		h.do(line)
	}
	h.ledger = h.ledger.reopen(0, true)
	h.start("", time.Second)
	time.Sleep(30 * time.Minute) // longer than any wait for a retry, and than a watcher can inherit deletes
	h.end()
	h.ledger = h.ledger.reopen(0, true)
	h.ledger.checkDone(h.source)
}

// start starts the program, which wins the election after a while.
func (h *history) start(overdue string, wins time.Duration) {
	var err error
	h.started = time.Now()
	l := h.ledger
	h.pods, err = informer.NewFrom(h.source, informer.Options[*corev1.Pod]{Durable: l, WatchList: h.mode, ErrorHandler: testkit.Ignore})
	testkit.Must(h.t, err)
	h.group = &informer.Group{ErrorHandler: testkit.Ignore}
	h.controllers = map[string]*enqueue.Controller[key]{}
	won, lost := make(chan struct{}), make(chan struct{})
	h.lose = sync.OnceFunc(func() {
		close(lost)
		synctest.Wait() // a worker may have looked before, and begin its call now
		l.loseLease()
	})
	h.overdue = overdue
	for _, c := range controllersOf {
		opts := c.opts
		opts.Name, opts.RecoverPanics = c.name, true
		if c.name == elected {
			opts.Elected, opts.Lost = won, lost
		}
		controller, err := enqueue.NewController(h.reconcile(c.name), opts, h.sources(c.name, c.sources)...)
		testkit.Must(h.t, err)
		testkit.Must(h.t, h.group.Add(controller))
		h.controllers[c.name] = controller
	}
	h.watch("slow", informer.WatcherOptions{})
	h.watch("workers", informer.WatcherOptions{Workers: 2, Retry: informer.Backoff(100*time.Millisecond, 20*time.Second, 0)})
	testkit.Must(h.t, h.group.Add(h.pods))
	ctx, cancel := context.WithCancel(h.t.Context())
	done := make(chan error, 1)
	go func() { done <- h.group.Run(ctx) }()
	winning := time.AfterFunc(wins, func() { close(won) })
	h.end = func() {
		h.end = nil
		cancel()
		winning.Stop()
		if err := <-done; err != nil && !errors.Is(err, informer.ErrLeaseLost) {
			h.t.Fatal(err)
		}
	}
}

func (h *history) sources(name string, kinds []string) (all []enqueue.Source[key]) {
	for _, kind := range kinds {
		switch kind {
		case "For":
			var changes []enqueue.Change
			if name == elected {
				changes = []enqueue.Change{enqueue.Generation}
			}
			all = append(all, enqueue.For(h.pods, changes...))
		case "Owns":
			all = append(all, enqueue.Owns(h.pods, enqueue.Owners{Kind: schema.GroupKind{Group: "apps", Kind: "ReplicaSet"}}))
		case "Watches":
			l := h.ledger
			all = append(all, enqueue.Watches(h.pods, func(_ context.Context, pod *corev1.Pod) ([]key, error) {
				l.on(pod, func(f *fate) { f.mapped[name] = true })
				of := key{Namespace: "ns", Name: pod.Labels["of"]}
				switch {
				case !l.calm && percent(l.chance(name+" maps "+pod.Name), 25):
					return nil, errInjected
				case of.Name == "":
					return nil, nil
				}
				other := of
				other.Name += "-other"
				return []key{of, other, of}, nil
			}))
		}
	}
	return all
}

// reconcile returns the function of a controller. It fails at times, unless the process is calm.
func (h *history) reconcile(name string) func(context.Context, key) (time.Duration, error) {
	l, overdue := h.ledger, h.overdue
	return func(ctx context.Context, key key) (time.Duration, error) {
		good := false
		defer func(returned func(bool)) { returned(good) }(l.begins(need{name, key.Name}))
		if name == elected {
			h.under.Store(ctx, nil)
			defer h.under.Delete(ctx)
		}
		random := l.chance(name + " reconciles " + key.Name)
		began, longest := time.Now(), 5000
		if l.calm { // no call reaches CallTimeout
			longest = 2000
		}
		switch n := random.IntN(100); {
		case n < 2 && !l.calm: // it hangs, and does not heed its ctx
			time.Sleep(20 * time.Minute)
		case n < 50:
			select {
			case <-time.After(time.Duration(random.IntN(longest)) * time.Millisecond):
			case <-ctx.Done():
				return 0, ctx.Err()
			}
			if name == "labels and owners" && time.Since(began) > 2*time.Second {
				h.t.Errorf("a call of %s lasts %v, longer than CallTimeout", name, time.Since(began))
			}
		}
		if name == elected && ctx.Err() != nil && errors.Is(context.Cause(ctx), informer.ErrLeaseLost) {
			return 0, nil // which must not count
		}
		if name == controllersOf[0].name && key.Name == overdue {
			h.atOnce++ // there is one such call at a time
			return -1, nil
		}
		again, err := time.Duration(0), error(nil)
		if n := random.IntN(100); !l.calm {
			switch {
			case n < 15:
				err = errInjected
			case n < 20:
				err = fmt.Errorf("%w: %w", errInjected, informer.ErrPermanent)
			case n < 25:
				panic(errInjected)
			case n < 30:
				again = time.Duration(random.IntN(20)-1) * time.Second
			case n < 33:
				again = 1
			}
		}
		good = err == nil && again == 0 || errors.Is(err, informer.ErrPermanent)
		return again, err
	}
}

// watch adds a plain watcher.
func (h *history) watch(name string, opts informer.WatcherOptions) {
	l := h.ledger
	opts.Name = name
	_, err := h.pods.AddWatcher(informer.WatcherFunc[*corev1.Pod](func(ctx context.Context, e informer.Event[*corev1.Pod]) error {
		l.on(e.Object(), func(f *fate) { f.told[name] = true })
		random := l.chance(name + " is told of " + e.Object().Name)
		if name == "slow" && percent(random, 30) {
			select {
			case <-time.After(10 * time.Second):
			case <-ctx.Done():
			}
		}
		if opts.Retry != nil && !l.calm && percent(random, 30) {
			return errInjected
		}
		if e.Type == informer.EventDeleted {
			l.on(e.Old, func(f *fate) { f.handled[name] = true })
		}
		return nil
	}), opts)
	testkit.Must(h.t, err)
}

// checkKept checks that the store keeps no tombstone that is not needed. That is known if everything
// was delivered and no call is under way. Deletes from before the start are kept for a minute.
func (h *history) checkKept() {
	health := h.pods.Health()
	behind := slices.ContainsFunc(health.Watchers, func(w informer.WatcherHealth) bool { return w.Pending > 0 })
	for _, c := range h.controllers {
		figures := c.Health()
		behind = behind || figures.Busy > 0 || figures.Queued > 0
	}
	if behind || health.StoreError != nil || h.ledger.hasCrashed() || time.Since(h.started) < 2*time.Minute {
		return
	}
	h.ledger.checkDying()
	idle := h.ledger.idle()
	time.Sleep(10 * time.Second)
	synctest.Wait()
	if h.ledger.hasCrashed() {
		return
	}
	_, tombstones := contentsOf(h.t, h.ledger)
	for _, id := range idle {
		if tombstones[id] != nil {
			h.t.Errorf("the tombstone of %v is kept, and not needed", id)
		}
	}
}
