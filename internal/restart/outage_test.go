package restart_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
)

// Tests with stores that fail for a time or at random.

// sequences returns names of objects. Each name describes what happens to its object:
//   - y or n: whether the object exists at first.
//   - Three changes: w is a write, d a delete, t a write for which Transform fails.
//   - A bit mask of the first three operations of the store at which the test may interfere.
//
// For example, y-wdw-5 exists at first, is written, deleted and written again, and the test
// may interfere with the first and the third operation.
func sequences() []string {
	var names []string
	for _, there := range "yn" {
		for n := range 27 {
			changes := string([]byte{"wdt"[n%3], "wdt"[n/3%3], "wdt"[n/9]})
			for subset := range 8 {
				names = append(names, fmt.Sprintf("%c-%s-%d", there, changes, subset))
			}
		}
	}
	return names
}

// refusal is a way in which a store fails for the objects of sequences. Each call of asked
// counts one operation, and reports whether the bit mask of the object includes it.
type refusal func(op, name string, asked func() bool) error

var refusals = map[string]func() refusal{
	"a write is refused":                              refuseAll(false),
	"a get is refused":                                refuseAll(true),
	"a write fails and is then refused":               failThen(errDown, "write", errRefuses),
	"a write takes effect, fails and is then refused": failThen(afterwards{errDown}, "write", errRefuses),
	"a write takes effect, fails and cannot be read":  failThen(afterwards{errDown}, "get", errRefuses),
	"a write takes effect and fails, twice":           failThen(afterwards{errDown}, "write", afterwards{errDown}),
}

// refuseAll refuses gets or writes.
func refuseAll(gets bool) func() refusal {
	return func() refusal {
		return func(op, _ string, asked func() bool) error {
			return errorIf((op == "get") == gets && asked(), errRefuses)
		}
	}
}

// failThen makes a write fail with first, and then the next operation of the kind next, a
// write or a get, with then.
func failThen(first error, next string, then error) func() refusal {
	return func() refusal {
		failed := map[string]bool{}
		return func(op, name string, asked func() bool) error {
			if op != "get" {
				op = "write"
			}
			switch {
			case failed[name] && op == next:
				failed[name] = false
				return then
			case op == "write" && !failed[name] && asked():
				failed[name] = true
				return first
			}
			return nil
		}
	}
}

func TestStoreAndWatchersAgreeWhenSomeOfManyChangesAreRefused(t *testing.T) {
	ways := []string{"relisted", "watched", "missed"}
	if testing.Short() {
		ways = ways[:1]
	}
	for what, refuse := range refusals {
		for _, way := range ways {
			for _, then := range []string{"written", "deleted"} {
				eachQueueOf(t, strings.Join([]string{what, way, then}, "/"), func(t *testing.T, queue informer.QueueKind) {
					sequencesThrough(t, queue, refuse(), way, then)
				})
			}
		}
	}
}

// sequencesThrough makes the changes of all sequences while the store is blocked, so that they
// wait in the queue. The store then refuses some of them. At the end, each object is written
// or deleted.
func sequencesThrough(t *testing.T, queue informer.QueueKind, refuse refusal, way, then string) {
	all := sequences()
	tr := newTrial(t, queue)
	start(t, tr.ci)
	for _, name := range all {
		if name[0] == 'y' {
			tr.src.Apply(object(name, "0"))
		}
	}
	tr.agree()

	count := map[string]int{}
	tr.store.SetFail(func(op, key string) error {
		name := strings.TrimPrefix(key, "default/")
		if err := tr.before(op, key); err != nil || name == "gate" {
			return err
		}
		return tr.now(refuse(op, name, func() bool {
			n := count[name]
			count[name]++
			return (name[len(name)-1]-'0')>>n&1 == 1
		}))
	})
	change := func() {
		for n := range 3 {
			for _, name := range all {
				switch name[2+n] {
				case 'w':
					tr.src.Apply(object(name, fmt.Sprint(n+1)))
				case 't':
					tr.src.Apply(object(name, "bad"))
				case 'd':
					_, _ = tr.src.Delete(keyOf(name))
				}
			}
		}
	}
	tr.pileUp(func() {
		switch way {
		case "watched":
			change()
		case "relisted":
			change()
			synctest.Wait()
			tr.src.Expire()
		case "missed":
			tr.missed(change)
		}
	})

	tr.store.SetFail(tr.before)
	end := func() {
		for _, name := range all {
			if then == "deleted" {
				_, _ = tr.src.Delete(keyOf(name))
			} else {
				tr.src.Apply(object(name, "end"))
			}
		}
	}
	if way == "watched" {
		end()
	} else {
		tr.missed(end)
	}
	tr.agree()
	tr.relist()
}

func TestTheRefusalOfAStoredChangeDoesNotCount(t *testing.T) {
	for _, decodes := range []bool{false, true} {
		for _, kind := range []string{"versioned", "plain"} { // plain: no UID and no version, like the objects of fakes
			t.Run(fmt.Sprintf("%s, decoding %v", kind, decodes), func(t *testing.T) {
				eachTrial(t, nil, func(t *testing.T, tr *trial) {
					tr.store.Decodes = decodes
					late := afterwards{errDown}
					tr.answer("add a", late)
					tr.answer("update a", errDown, errRefuses)
					tr.src.Apply(object("a", kind+" 1"))
					tr.expect("added a")
					tr.answer("update a", late, errDown, errRefuses)
					tr.src.Apply(object("a", kind+" 2"))
					tr.expect("updated a")
					tr.reported(0, "add a failed", "update a failed")
					tr.answer("update a", errDown, errRefuses)
					tr.src.Apply(object("a", kind+" 3"))
					tr.expect()
					tr.reported(1, "update a failed", "update a refused at 2")
					equal(t, "stored", valueOf(tr.Get(keyOf("a"))), kind+" 2")
					tr.answer("delete a", late)
					tr.answer("get a", nil, errDown, errRefuses)
					tr.delete("a")
					tr.expect("deleted a")
					tr.reported(1, "delete a failed")
				})
			})
		}
	}
}

// TestStoreAndWatchersEndWithTheStateOfTheSource makes random changes over a store
// that fails at random. The recorders check each event against the earlier ones.
func TestStoreAndWatchersEndWithTheStateOfTheSource(t *testing.T) {
	runs := longOrShort(8, 2)
	for range runs {
		seed := rand.Uint64()
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			eachQueue(t, func(t *testing.T, queue informer.QueueKind) { atRandom(t, queue, seed) })
		})
	}
}

func atRandom(t *testing.T, queue informer.QueueKind, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	tr := newTrial(t, queue)
	for n := range 6 {
		name := fmt.Sprint("o", rnd.IntN(9))
		tr.src.Apply(object(name, fmt.Sprint(n)))
		if rnd.IntN(2) == 0 {
			name = fmt.Sprint("old", n)
		}
		old := object(name, "old") // in the store before the start
		old.UID, old.ResourceVersion = types.UID(name), "1"
		_ = tr.store.Add(old)
	}
	tr.store.Lenient, tr.store.Decodes = rnd.IntN(2) == 0, rnd.IntN(2) == 0
	tr.store.Fail, tr.store.After = moody(rand.New(rand.NewPCG(seed, 2)))
	start(t, tr.ci)
	change := func(n int) {
		name := fmt.Sprint("o", rnd.IntN(9))
		switch dice := rnd.IntN(10); {
		case dice < 3:
			_, _ = tr.src.Delete(keyOf(name))
		case dice == 3:
			tr.src.Apply(object(name, "bad"))
		case dice == 4:
			_, _ = tr.src.Delete(keyOf(name))
			tr.src.Apply(object(name, fmt.Sprint("again ", n)))
		default:
			tr.src.Apply(object(name, fmt.Sprint(n)))
		}
	}
	for n := range 500 {
		switch dice := rnd.IntN(50); dice {
		case 0:
			tr.src.Expire()
		case 1:
			tr.missed(func() {
				for range rnd.IntN(20) {
					change(n)
				}
			})
		case 2:
			tr.src.Disconnect()
		case 3:
			tr.join(informer.WatcherOptions{})
		case 4:
			tr.join(informer.WatcherOptions{MaxBacklog: 1 + rnd.IntN(5), Workers: rnd.IntN(4)})
		case 5:
			tr.agree()
		case 6, 7, 8, 9, 10:
			time.Sleep(time.Duration(rnd.IntN(30_000)) * time.Millisecond)
		case 11, 12, 13, 14, 15:
			synctest.Wait()
		default:
			change(n)
		}
	}
	tr.agree()
	tr.store.SetFail(nil)
	tr.store.After = nil
	for _, obj := range tr.src.Objects() {
		if obj.Data["value"] == "bad" {
			tr.src.Apply(object(obj.Name, "good"))
		}
	}
	tr.relist()
}

// moody returns functions that make a store refuse a tenth of all operations and fail a fifth
// of them, half of these after they took effect. It does not refuse a write if an earlier write
// of the same object failed and the get that was to show its outcome was refused too. No
// informer can cope with such a store.
func moody(rnd *rand.Rand) (fail, after func(op, key string) error) {
	doubt, unseen := map[string]bool{}, map[string]bool{}
	failed := func(op, key string) error {
		doubt[key] = doubt[key] || op != "get"
		return errDown
	}
	late := false
	fail = func(op, key string) error {
		dice := rnd.IntN(10)
		late = dice == 1
		switch {
		case dice == 0:
			return failed(op, key)
		case dice == 2 && op == "get":
			unseen[key] = doubt[key]
			return errRefuses
		case dice == 2 && !unseen[key]:
			doubt[key] = false
			return errRefuses
		}
		return nil
	}
	after = func(op, key string) error {
		if late {
			return failed(op, key)
		}
		unseen[key] = false
		doubt[key] = doubt[key] && op == "get"
		return nil
	}
	return fail, after
}

// flaky makes three of ten operations fail, half of them after they took effect.
func flaky() (fail, after func(op, key string) error) {
	rnd := rand.New(rand.NewPCG(3, 30))
	fail = func(string, string) error {
		if rnd.IntN(1000) < 163 { // drawn before and after the operation: 30 % together
			return errDown
		}
		return nil
	}
	return fail, fail
}

// downAtFirst makes the first thousand operations fail.
func downAtFirst() (fail, after func(op, key string) error) {
	n := 0
	fail = func(string, string) error {
		n++
		return errorIf(n <= 1000, errDown)
	}
	return fail, nil
}

func TestAHundredThousandChangesThroughAStoreThatFails(t *testing.T) {
	for name, c := range map[string]struct {
		outage           func() (fail, after func(op, key string) error)
		relists          int
		lenient, decodes bool
	}{
		"at first":               {outage: downAtFirst, decodes: true},
		"at random":              {outage: flaky, lenient: true},
		"at random, and relists": {outage: flaky, relists: 20},
	} {
		eachQueueOf(t, name, func(t *testing.T, queue informer.QueueKind) {
			store := newPlainStore()
			store.Lenient, store.Decodes = c.lenient, c.decodes
			throughAnOutage(t, queue, store, c.outage, c.relists)
		})
	}
}

func throughAnOutage(t *testing.T, queue informer.QueueKind, store *plainStore, outage func() (fail, after func(op, key string) error), relists int) {
	const objects, rounds = 500, 20
	each := longOrShort(5000, 250) // changes per round
	src := informertest.NewSource[configMap]()
	for n := range objects {
		src.Apply(small(n, 0))
	}
	inf := newInformer(t, src, options{Queue: queue, Store: store, ErrorHandler: func(_ context.Context, err error) {
		var failed *informer.StoreError
		var cut *informer.WatchError // a stream of the first state that waited for the store
		if !errors.As(err, &cut) && (!errors.As(err, &failed) || failed.Failures != 1 || failed.GaveUp || failed.Key == "") {
			t.Errorf("reported %v", err)
		}
	}})
	fail, after := outage()
	complete := false
	store.After = after
	store.Fail = func(op, key string) error {
		complete = complete || len(store.Objects) == objects
		if !complete && inf.HasSynced() {
			t.Errorf("synced with %d of %d objects in the store", len(store.Objects), objects)
			complete = true
		}
		return fail(op, key)
	}
	first := newGrowing()
	addWatcher(t, inf, first, informer.WatcherOptions{MaxBacklog: -1, OnSynced: func(context.Context) {
		if got := len(first.View()); got != objects || !inf.HasSynced() {
			t.Errorf("a watcher synced with %d of %d objects", got, objects)
		}
	}})
	all := []*growing{first}
	start(t, inf)
	<-inf.Synced()
	checkStore(t, inf, src)

	rnd := rand.New(rand.NewPCG(1, uint64(relists)))
	happened, n := objects, 0
	change := func(times int) {
		for range times {
			n++
			i := rnd.IntN(objects)
			if n%10 == 9 {
				if _, err := src.Delete(keyOf(small(i, n).Name)); err != nil {
					continue
				}
			} else {
				src.Apply(small(i, n))
			}
			happened++
		}
	}
	caughtUp := func() {
		must(t, inf.WaitForVersion(within(t, 24*hour), "", src.ResourceVersion()))
	}
	for round := range rounds {
		change(each * 9 / 10)
		if round == rounds/2 {
			late := newGrowing()
			addWatcher(t, inf, late, informer.WatcherOptions{MaxBacklog: -1})
			all = append(all, late)
		}
		if round < relists {
			caughtUp()
		}
		change(each / 20)
		if round < relists { // while the store is behind
			src.SetFaults(informertest.Faults{Mute: true})
			change(each / 20)
			src.Expire()
			src.SetFaults(informertest.Faults{})
		} else {
			change(each / 20)
		}
		caughtUp()
		src.Compact() // otherwise the source keeps all events
	}
	synctest.Wait()
	if lost := happened - len(first.Events()); lost < 0 || lost > relists*each/10 {
		t.Errorf("the watcher got %d events for %d changes", len(first.Events()), happened)
	}
	for _, r := range all {
		checkView(t, &r.recorder, src)
		equal(t, "events that did not bring a newer version of their object", r.back, 0)
	}
	store.SetFail(nil)
	store.After = nil
	checkStore(t, inf, src)
}

// growing is a recorder that counts the events whose object is not newer than in its previous
// event.
type growing struct {
	recorder
	back int
}

func newGrowing() *growing {
	g, versions := &growing{}, map[string]int{}
	g.Hook = func(_ context.Context, e event) error {
		if e.New != nil {
			version, _ := strconv.Atoi(e.New.ResourceVersion)
			if version <= versions[e.New.Name] {
				g.back++
			}
			versions[e.New.Name] = version
		}
		return nil
	}
	return g
}
