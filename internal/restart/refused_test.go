package restart_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
)

// Tests with changes that a store refuses for good.

var errRefuses = fmt.Errorf("the store refuses it: %w", informer.ErrPermanent)

// afterwards is the error of an operation that has taken effect nevertheless.
type afterwards struct{ error }

// trial is an informer over a store that gives the answers that the test defines. Whenever the
// test compares states, more watchers join. Every watcher must know the state of the store.
type trial struct {
	*ci
	t       *testing.T
	src     *source
	store   *plainStore
	errs    errorLog
	first   *recorder // registered before Run
	all     []*recorder
	answers map[string][]error // by "operation name", each used once; protected by store.mu
	late    error              // the error to return after the operation under way
	closed  bool               // the store fails for the object "gate"; protected by store.mu
}

// newTrial returns a trial whose informer does not run yet.
func newTrial(t *testing.T, queue informer.QueueKind, objs ...configMap) *trial {
	t.Helper()
	tr := &trial{t: t, src: informertest.NewSource(objs...), store: newPlainStore(), answers: map[string][]error{}}
	tr.store.Fail, tr.store.After = tr.before, func(string, string) error { return tr.late }
	tr.ci = newInformer(t, tr.src, options{Queue: queue, Store: tr.store, ErrorHandler: tr.errs.Handle,
		Transform: func(obj configMap) (configMap, error) {
			switch value, _, _ := strings.Cut(obj.Data["value"], " "); value {
			case "bad":
				return nil, errors.New("cannot be transformed")
			case "plain":
				obj.UID, obj.ResourceVersion = "", ""
			}
			return obj, nil
		}})
	tr.first = tr.join(informer.WatcherOptions{})
	tr.join(informer.WatcherOptions{ResyncPeriod: 20 * time.Second})
	return tr
}

// eachTrial runs a test with each kind of queue, and with a trial that has synced with objs.
func eachTrial(t *testing.T, objs []configMap, test func(t *testing.T, tr *trial)) {
	t.Helper()
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		tr := newTrial(t, queue, objs...)
		informertest.Run(t, tr.ci)
		var added []string
		for _, obj := range objs {
			added = append(added, "added default/"+obj.Name)
		}
		tr.first.Expect(t, added...)
		test(t, tr)
	})
}

func (tr *trial) before(op, key string) error {
	name := strings.TrimPrefix(key, "default/")
	if name == "gate" && tr.closed {
		return errDown
	}
	op += " " + name
	tr.late = nil
	queue := tr.answers[op]
	if len(queue) == 0 {
		return nil
	}
	tr.answers[op] = queue[1:]
	return tr.now(queue[0])
}

// now returns err, or nil if err is an afterwards: that one is returned after the operation.
func (tr *trial) now(err error) error {
	if late := (afterwards{}); errors.As(err, &late) {
		tr.late, err = late.error, nil
	}
	return err
}

func (tr *trial) locked(f func()) {
	tr.store.Mu.Lock()
	defer tr.store.Mu.Unlock()
	f()
}

// answer makes the next attempts of op, such as "add a", return errs, one error each.
func (tr *trial) answer(op string, errs ...error) {
	tr.locked(func() { tr.answers[op] = append(tr.answers[op], errs...) })
}

// pileUp makes the store fail for the object "gate" while changes runs. All changes are in the
// queue when the store works again.
func (tr *trial) pileUp(changes func()) {
	tr.locked(func() { tr.closed = true })
	tr.src.Apply(object("gate", tr.src.ResourceVersion()))
	synctest.Wait()
	changes()
	sleepBubble(time.Minute) // time for a relist
	tr.locked(func() { tr.closed = false })
	tr.agree()
}

// missed makes changes that no watch reports, and then a relist that finds them.
func (tr *trial) missed(changes func()) {
	tr.src.SetFaults(informertest.Faults{Mute: true})
	synctest.Wait()
	changes()
	tr.src.Expire()
	tr.src.SetFaults(informertest.Faults{})
}

func (tr *trial) delete(name string) {
	tr.t.Helper()
	_, err := tr.src.Delete(keyOf(name))
	must(tr.t, err)
}

func (tr *trial) join(opts informer.WatcherOptions) *recorder {
	tr.t.Helper()
	r := &recorder{}
	if opts.MaxBacklog == 0 {
		opts.MaxBacklog = -1 // no merging: each event must come
	}
	addWatcher(tr.t, tr.ci, r, opts)
	tr.all = append(tr.all, r)
	return r
}

// agree waits until the informer is idle. It fails the test unless every watcher, including the
// two that join now, has the state of the store. A store that fails at random may do so for more
// than a minute.
func (tr *trial) agree() {
	tr.t.Helper()
	tr.join(informer.WatcherOptions{}) // may join while changes are being applied
	sleepBubble(time.Minute)
	for n := 0; tr.Health().StoreError != nil && n < 10; n++ {
		sleepBubble(time.Minute)
	}
	tr.join(informer.WatcherOptions{})
	synctest.Wait()
	tr.store.Mu.Lock()
	objs := slices.Collect(maps.Values(tr.store.Objects))
	tr.store.Mu.Unlock()
	if indexed, err := tr.List("default", nil); err == nil && names(indexed) != names(objs) {
		tr.t.Errorf("the index has %q, the store %q", names(indexed), names(objs))
	}
	state := versions(objs...)
	for i, r := range tr.all {
		if err := r.Err(); err != nil {
			tr.t.Errorf("watcher %d: %v", i, err)
		}
		if view := versions(slices.Collect(maps.Values(r.View()))...); !maps.Equal(state, view) {
			tr.t.Errorf("watcher %d does not know the state of the store (-store +watcher):\n%s", i, cmp.Diff(state, view))
		}
	}
}

// expect calls agree, and fails the test unless the first watcher got exactly the wanted events
// since the last call of expect.
func (tr *trial) expect(want ...string) {
	tr.t.Helper()
	tr.agree()
	for i, event := range want {
		kind, name, _ := strings.Cut(event, " ")
		want[i] = kind + " default/" + name
	}
	tr.first.Expect(tr.t, want...)
	tr.first.Expect(tr.t)
}

// last returns the n-th event from the end.
func (tr *trial) last(n int) event {
	events := tr.first.Events()
	return events[len(events)-n]
}

// reported fails the test unless the errors since its last call are want. For example,
// "add a refused at 2" means that the second attempt to add a was refused. refused is the
// number of refused changes that Health must show.
func (tr *trial) reported(refused int, want ...string) {
	tr.t.Helper()
	var got []string
	for _, err := range tr.errs.Take() {
		var failed *informer.StoreError
		if !errors.As(err, &failed) {
			continue // an error of Transform
		}
		s := failed.Op + " " + strings.TrimPrefix(failed.Key, "default/") + " failed"
		if failed.GaveUp {
			s = strings.TrimSuffix(s, "failed") + fmt.Sprint("refused at ", failed.Failures)
		}
		if failed.GaveUp != errors.Is(err, informer.ErrPermanent) {
			s += ": " + err.Error()
		}
		got = append(got, s)
	}
	if diff := cmp.Diff(sorted(want), sorted(got)); diff != "" {
		tr.t.Errorf("reported (-want +got):\n%s", diff)
	}
	h := tr.Health()
	if h.Refused != refused || h.StoreError != nil {
		tr.t.Errorf("Health counts %d refused changes, want %d, and the store fails with %v", h.Refused, refused, h.StoreError)
	}
}

// relist makes the informer list over a store that works. It fails the test unless the store
// and all watchers then have the state of the source.
func (tr *trial) relist() {
	tr.t.Helper()
	tr.locked(func() { clear(tr.answers) })
	tr.src.Expire()
	tr.agree()
	checkStore(tr.t, tr.ci, tr.src)
}

func TestARefusedAddIsNotDeliveredAndTheNextChangeIsTheAdd(t *testing.T) {
	eachTrial(t, objects("other"), func(t *testing.T, tr *trial) {
		tr.answer("add a", errRefuses)
		tr.src.Apply(object("a", "1"))
		tr.expect()
		tr.reported(1, "add a refused at 1")
		equal(t, "a refused object", valueOf(tr.Get(keyOf("a"))), "none")
		tr.src.Apply(object("a", "2"))
		tr.expect("added a")
		equal(t, "value of the add", tr.last(1).New.Data["value"], "2")
		tr.delete("a")
		tr.expect("deleted a")
		tr.relist()
	})
}

func TestTheDeleteOfARefusedObjectIsNotDelivered(t *testing.T) {
	eachTrial(t, nil, func(t *testing.T, tr *trial) {
		tr.answer("add watched", errRefuses)
		tr.answer("add missed", errRefuses)
		tr.src.Apply(object("watched", "1"))
		tr.src.Apply(object("missed", "1"))
		tr.expect()
		tr.delete("watched")
		tr.expect()
		tr.missed(func() { tr.delete("missed") })
		tr.expect()
		tr.reported(2, "add watched refused at 1", "add missed refused at 1")
		tr.relist()
	})
}

func TestARefusedObjectComesWithTheNextRelistIfItStillExists(t *testing.T) {
	eachTrial(t, objects("b"), func(t *testing.T, tr *trial) {
		tr.answer("add a", errRefuses, errRefuses)
		tr.answer("update b", errRefuses, errRefuses)
		tr.src.Apply(object("a", "1"))
		tr.src.Apply(object("b", "2"))
		tr.expect()
		tr.src.Expire()
		tr.expect()
		tr.reported(4, "add a refused at 1", "update b refused at 1", "add a refused at 1", "update b refused at 1")
		tr.src.Expire()
		tr.expect("added a", "updated b")
		tr.relist()
	})
}

func TestARefusedUpdateLeavesTheOldStateToAll(t *testing.T) {
	eachTrial(t, objects("a"), func(t *testing.T, tr *trial) {
		tr.answer("update a", errRefuses)
		tr.src.Apply(object("a", "2"))
		tr.expect()
		tr.reported(1, "update a refused at 1")
		equal(t, "stored", valueOf(tr.Get(keyOf("a"))), "1")
		tr.src.Apply(object("a", "3"))
		tr.expect("updated a")
		e := tr.last(1)
		equal(t, "values of the next update", e.Old.Data["value"]+" "+e.New.Data["value"], "1 3")
		tr.answer("update a", errRefuses)
		tr.src.Apply(object("a", "4"))
		tr.expect()
		tr.delete("a")
		tr.expect("deleted a")
		equal(t, "value of the delete", tr.last(1).Old.Data["value"], "3")
		tr.relist()
	})
}

func TestARefusedDeleteIsTriedAgainAtEachRelist(t *testing.T) {
	eachTrial(t, objects("watched", "missed"), func(t *testing.T, tr *trial) {
		tr.answer("delete watched", errRefuses, errRefuses)
		tr.answer("delete missed", errRefuses, errRefuses)
		tr.delete("watched")
		tr.expect()
		tr.missed(func() { tr.delete("missed") })
		tr.expect()
		tr.src.Expire()
		tr.expect("deleted watched")
		tr.src.Expire()
		tr.expect("deleted missed")
		for n := range 2 {
			if e := tr.last(n + 1); !e.FinalStateUnknown || e.Origin != informer.OriginRelist || e.Old.Data["value"] != "1" {
				t.Errorf("the delete that the relist found came as %+v", e)
			}
		}
		equal(t, "refused changes", tr.Health().Refused, 4)
		tr.relist()
	})
}

func TestAChangeOfAnUnreadableObjectIsRefused(t *testing.T) {
	eachTrial(t, objects("a", "b", "c"), func(t *testing.T, tr *trial) {
		tr.answer("get a", errRefuses)
		rv := tr.src.Apply(object("a", "2")).ResourceVersion
		noError(t, tr.WaitForVersion(within(t, time.Second), "", rv))
		tr.expect()
		tr.answer("get b", errDown, errRefuses)
		tr.delete("b")
		tr.expect()
		tr.answer("get d", errRefuses)
		tr.src.Apply(object("d", "1"))
		tr.expect()
		tr.delete("d")
		tr.expect()
		tr.reported(3, "get a refused at 1", "get b failed", "get b refused at 2", "get d refused at 1")
		tr.answer("get c", errRefuses)
		tr.missed(func() { tr.delete("c") })
		tr.expect("updated a", "deleted b")
		tr.reported(4, "get c refused at 1")
		tr.src.Expire()
		tr.expect("deleted c")
		tr.relist()
	})
}

func TestAnObjectCreatedAgainAfterARefusedDeleteIsADeleteAndAnAdd(t *testing.T) {
	eachTrial(t, objects("a"), func(t *testing.T, tr *trial) {
		tr.answer("delete a", errRefuses)
		tr.delete("a")
		tr.src.Apply(object("a", "2"))
		tr.expect("deleted a", "added a")
		tr.reported(1, "delete a refused at 1")

		tr.answer("update a", errRefuses) // refuses the delete and the add together
		tr.missed(func() {
			tr.delete("a")
			tr.src.Apply(object("a", "3"))
		})
		tr.expect()
		tr.reported(2, "update a refused at 1")
		tr.src.Apply(object("a", "4"))
		tr.expect("deleted a", "added a")
		if del, add := tr.last(2), tr.last(1); del.Old.Data["value"] != "2" || add.New.Data["value"] != "4" {
			t.Errorf("deleted %s, added %s", del.Old.Data["value"], add.New.Data["value"])
		}
		tr.relist()
	})
}

func TestARefusedObjectOfTheFirstListDoesNotHoldUpTheRest(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		tr := newTrial(t, queue, object("a", "1"), object("b", "1"), object("c", "1"))
		tr.answer("add b", errRefuses)
		tr.answer("add c", errDown, errRefuses)
		informertest.Run(t, tr.ci)
		equal(t, "synced at", tr.ResourceVersion(), tr.src.ResourceVersion())
		noError(t, tr.WaitForVersion(within(t, time.Second), "", tr.src.Objects()[2].ResourceVersion))
		tr.expect("added a")
		tr.reported(2, "add b refused at 1", "add c failed", "add c refused at 2")
		noError(t, tr.Health().Ready())
		tr.answer("update a", errRefuses)
		rv := tr.src.Apply(object("a", "2")).ResourceVersion
		noError(t, tr.WaitForVersion(within(t, time.Second), "", rv))
		tr.src.Apply(object("b", "2"))
		tr.expect("added b")
		tr.relist()
		tr.first.Expect(t, "updated default/a", "added default/c")
	})
}

func TestARefusedDeleteOfAnObjectFromBeforeRunIsTriedAgain(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		tr := newTrial(t, queue, object("stays", "1"))
		for _, obj := range informertest.NewSource(object("gone", "1"), object("stays", "0")).Objects() {
			_ = tr.store.Add(obj)
		}
		tr.answer("delete gone", errRefuses)
		tr.answer("update stays", errRefuses)
		informertest.Run(t, tr.ci)
		tr.expect("added gone", "added stays")
		tr.reported(2, "delete gone refused at 1", "update stays refused at 1")
		tr.relist()
		tr.first.Expect(t, "deleted default/gone", "deleted default/stays", "added default/stays")
	})
}
