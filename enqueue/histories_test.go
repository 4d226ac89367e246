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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/enqueue"
	"github.com/customcacheinformer/informer/informertest"
)

var (
	histories   = flag.Int("histories", 1000, "how many histories to play; with -short a twentieth")
	historySeed = flag.Uint64("history-seed", 0, "play only the history of this seed")
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

// elected is the controller with an election. It wants updates with a new generation alone.
const elected = "objects"

// history is a program that is stopped, or crashes, and is started again, while objects come and
// go. Its controllers and watchers fail at times.
type history struct {
	t      *testing.T
	random *dice
	mode   informer.WatchListMode
	source *informertest.Source[*corev1.Pod]
	ledger *ledger

	pods        *informer.CustomCacheInformer[*corev1.Pod]
	group       *informer.Group
	controllers map[string]*enqueue.Controller[types.NamespacedName]
	started     time.Time
	lose        func()   // loses the election, once
	overdue     string   // the key for which each call of the first controller asks at once
	atOnce      int      // such calls
	under       sync.Map // the ctxs of the calls of the elected controller
}

// dice are random numbers for several goroutines.
type dice struct {
	mu sync.Mutex
	r  *rand.Rand
}

func (d *dice) n(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.r.IntN(n)
}

// percent reports true with this probability.
func (d *dice) percent(p int) bool { return d.n(100) < p }

// No delete is lost, whatever happens: see ledger.
func TestInNoHistoryIsADeleteLost(t *testing.T) {
	first, n := uint64(1), *histories
	if testing.Short() {
		n /= 20
	}
	if *historySeed != 0 {
		first, n = *historySeed, 1
	}
	var played, deletes, exempt, kept, dying, losses, atOnce int
	for seed := first; seed < first+uint64(n); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHistory(t, seed)
				h.play()
				played++
				l := h.ledger
				deletes, exempt, kept = deletes+l.deletes, exempt+l.exempt, kept+l.kept
				dying, losses, atOnce = dying+l.checked, losses+l.losses, atOnce+h.atOnce
			})
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
	d := &dice{r: rand.New(rand.NewPCG(seed, 1))}
	return &history{
		t: t, random: d, mode: []informer.WatchListMode{informer.WatchListOn, informer.WatchListOff}[seed%2],
		source: informertest.NewSource[*corev1.Pod](), ledger: newLedger(t, d),
	}
}

func (h *history) ok(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

func (h *history) play() {
	for range 2 + h.random.n(4) {
		lose := 0
		if h.random.percent(30) {
			lose = 1 + h.random.n(4)
		}
		h.ledger = h.ledger.reopen(lose, false)
		if h.random.percent(50) {
			h.ledger.crashAt = 1 + h.random.n(40)
		}
		end := h.start()
		for range 5 + h.random.n(30) {
			h.step()
			if h.ledger.hasCrashed() {
				break
			}
		}
		time.Sleep(time.Duration(h.random.n(1000)) * time.Millisecond)
		if h.random.percent(50) {
			h.ledger.crash()
		}
		end()
		for range h.random.n(8) { // the program is down
			h.change()
		}
		if h.random.percent(20) {
			h.source.Compact()
		}
	}
	h.ledger = h.ledger.reopen(0, true)
	end := h.start()
	time.Sleep(30 * time.Minute) // longer than any wait for a retry, and than a watcher can inherit deletes
	end()
	h.ledger = h.ledger.reopen(0, true)
	h.ledger.checkDone(h.source)
}

// start starts the program. end ends it.
func (h *history) start() (end func()) {
	var err error
	h.started = time.Now()
	l := h.ledger
	h.pods, err = informer.NewFrom(h.source, informer.Options[*corev1.Pod]{Store: l, WatchList: h.mode, ErrorHandler: func(context.Context, error) {}})
	h.ok(err)
	h.group = &informer.Group{ErrorHandler: func(context.Context, error) {}}
	h.controllers = map[string]*enqueue.Controller[types.NamespacedName]{}
	won, lost := make(chan struct{}), make(chan struct{})
	h.lose = sync.OnceFunc(func() {
		close(lost)
		synctest.Wait() // a worker may have looked before, and begin its call now
		l.loseLease()
	})
	h.overdue = ""
	if !l.calm && h.random.percent(30) {
		h.overdue = string(rune('a' + h.random.n(6)))
	}
	for _, c := range controllersOf {
		opts := c.opts
		opts.Name, opts.RecoverPanics = c.name, true
		if c.name == elected {
			opts.Elected, opts.Lost = won, lost
		}
		controller, err := enqueue.NewController(h.reconcile(c.name), opts, h.sources(c.name, c.sources)...)
		h.ok(err)
		h.ok(h.group.Add(controller))
		h.controllers[c.name] = controller
	}
	h.watch("slow", informer.WatcherOptions{})
	h.watch("workers", informer.WatcherOptions{Workers: 2, Retry: informer.Backoff(100*time.Millisecond, 20*time.Second, 0)})
	h.ok(h.group.Add(h.pods))
	ctx, cancel := context.WithCancel(h.t.Context())
	done := make(chan error, 1)
	go func() { done <- h.group.Run(ctx) }()
	winning := time.AfterFunc(time.Duration(h.random.n(5000))*time.Millisecond, func() { close(won) })
	return func() {
		cancel()
		winning.Stop()
		if err := <-done; err != nil && !errors.Is(err, informer.ErrLeaseLost) {
			h.t.Fatal(err)
		}
	}
}

func (h *history) sources(name string, kinds []string) (all []enqueue.Source[types.NamespacedName]) {
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
			all = append(all, enqueue.Watches(h.pods, func(_ context.Context, pod *corev1.Pod) ([]types.NamespacedName, error) {
				l.on(pod, func(f *fate) { f.mapped[name] = true })
				of := types.NamespacedName{Namespace: "ns", Name: pod.Labels["of"]}
				switch {
				case !l.calm && h.random.percent(25):
					return nil, errInjected
				case of.Name == "":
					return nil, nil
				}
				other := of
				other.Name += "-other"
				return []types.NamespacedName{of, other, of}, nil
			}))
		}
	}
	return all
}

// reconcile returns the function of a controller. It fails at times, unless the process is calm.
func (h *history) reconcile(name string) func(context.Context, types.NamespacedName) (time.Duration, error) {
	l, overdue := h.ledger, h.overdue
	return func(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
		good := false
		defer func(returned func(bool)) { returned(good) }(l.begins(need{name, key.Name}))
		if name == elected {
			h.under.Store(ctx, nil)
			defer h.under.Delete(ctx)
		}
		began, longest := time.Now(), 5000
		if l.calm { // no call reaches CallTimeout
			longest = 2000
		}
		switch n := h.random.n(100); {
		case n < 2 && !l.calm: // it hangs, and does not heed its ctx
			time.Sleep(20 * time.Minute)
		case n < 50:
			select {
			case <-time.After(time.Duration(h.random.n(longest)) * time.Millisecond):
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
		if n := h.random.n(100); !l.calm {
			switch {
			case n < 15:
				err = errInjected
			case n < 20:
				err = fmt.Errorf("%w: %w", errInjected, informer.ErrPermanent)
			case n < 25:
				panic(errInjected)
			case n < 30:
				again = time.Duration(h.random.n(20)-1) * time.Second
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
		if name == "slow" && h.random.percent(30) {
			select {
			case <-time.After(10 * time.Second):
			case <-ctx.Done():
			}
		}
		if opts.Retry != nil && !l.calm && h.random.percent(30) {
			return errInjected
		}
		if e.Type == informer.EventDeleted {
			l.on(e.Old, func(f *fate) { f.handled[name] = true })
		}
		return nil
	}), opts)
	h.ok(err)
}

// step lets something happen while the program runs.
func (h *history) step() {
	switch n := h.random.n(100); {
	case n < 70:
		h.change()
		if h.random.percent(50) {
			return // the next change comes at once
		}
	case n < 75:
		h.source.Disconnect()
	case n < 78:
		h.source.Expire()
	case n < 81 && !slices.ContainsFunc(h.pods.Health().Watchers, func(w informer.WatcherHealth) bool { return w.Name == "late" }):
		h.watch("late", informer.WatcherOptions{})
	case n < 83:
		name := controllersOf[h.random.n(len(controllersOf))].name
		if c := h.controllers[name]; c != nil {
			delete(h.controllers, name)
			h.ledger.release(name)
			h.ok(h.group.Remove(c))
		}
	case n < 84:
		h.lose()
		h.under.Range(func(ctx, _ any) bool {
			h.ledger.losses++
			if cause := context.Cause(ctx.(context.Context)); !errors.Is(cause, informer.ErrLeaseLost) {
				h.t.Errorf("the ctx of a call goes on without the lease (%v)", cause)
			}
			return true
		})
	case n < 90:
		time.Sleep(2 * time.Minute)
	}
	time.Sleep(time.Duration(h.random.n(5000)) * time.Millisecond)
	synctest.Wait()
	h.checkKept()
}

// change changes an object in the source.
func (h *history) change() {
	name := string(rune('a' + h.random.n(6)))
	key := types.NamespacedName{Namespace: "ns", Name: name}
	if before, err := h.source.Get(key); err == nil {
		if h.random.percent(40) {
			after := before.DeepCopy()
			after.Annotations = map[string]string{"n": fmt.Sprint(h.random.n(1000))}
			after.OwnerReferences = h.create(name).OwnerReferences
			if h.random.percent(30) { // it is being deleted, or another finalizer goes
				now := metav1.Now()
				after.DeletionTimestamp = &now
			}
			_, err := h.source.Update(after)
			h.ok(err)
			return
		}
		_, err := h.source.Delete(key)
		h.ok(err)
		if h.random.percent(60) {
			return
		}
	}
	_, err := h.source.Create(h.create(name))
	h.ok(err)
}

// create returns an object, with an owner or without one. An object keeps its label.
func (h *history) create(name string) *corev1.Pod {
	pod := pod(name)
	if n := h.random.n(4); n > 0 {
		ownedBy(owner("apps/v1", "ReplicaSet", fmt.Sprint("owner-", n), true))(pod)
	}
	if n := h.random.n(4); n > 0 {
		pod.Labels = map[string]string{"of": fmt.Sprint("label-", n)}
	}
	return pod
}

// checkKept checks that the store keeps no tombstone that nobody needs. That is known if everything
// was told and no call is under way. Deletes from before the start are kept for a minute.
func (h *history) checkKept() {
	health := h.pods.Health()
	behind := slices.ContainsFunc(health.Watchers, func(w informer.WatcherHealth) bool { return w.Pending > 0 })
	for _, c := range h.controllers {
		figures := c.Health().Controller
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
			h.t.Errorf("the tombstone of %v is kept, and nobody needs it", id)
		}
	}
}
