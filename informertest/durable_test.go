package informertest_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
)

// durableOps are all operations of a Durable, by their names. Each works on a store from
// durableOf.
var durableOps = []struct {
	op  string
	key string
	do  func(ctx context.Context, d *informertest.Durable) error
}{
	{"resume", "", func(ctx context.Context, d *informertest.Durable) error { _, err := d.Resume(ctx); return err }},
	{"scan", "default/a", func(ctx context.Context, d *informertest.Durable) error {
		_, err := d.Scan(ctx, "default/a", 7)
		return err
	}},
	{"apply", "default/c", func(ctx context.Context, d *informertest.Durable) error {
		return d.Apply(ctx, []informer.Change{add("c", "1")}, "20")
	}},
	{"tombstones", "", func(ctx context.Context, d *informertest.Durable) error { _, err := d.Tombstones(ctx); return err }},
	{"forget", "", func(ctx context.Context, d *informertest.Durable) error {
		return d.Forget(ctx, map[string][]types.UID{"default/gone": {"uid-gone"}})
	}},
	{"get", "default/a", func(ctx context.Context, d *informertest.Durable) error {
		_, _, err := d.Get(ctx, "default/a")
		return err
	}},
}

func incarnation(name, value, number string) *corev1.ConfigMap {
	obj := configMap(name, value)
	obj.UID = types.UID("uid-" + name + number)
	return obj
}

func add(name, value string) informer.Change {
	return informer.Change{Entry: informer.Entry{Key: "default/" + name, Object: incarnation(name, value, "")}}
}

// addAgain adds another object with the name of one that was deleted.
func addAgain(name, value string) informer.Change {
	return informer.Change{Entry: informer.Entry{Key: "default/" + name, Object: incarnation(name, value, "-again")}}
}

func del(name string) informer.Change {
	c := add(name, "")
	c.Delete = true
	return c
}

// durableOf returns a store that holds a=1 and b=1 at version 10 and a tombstone of the object
// "gone".
func durableOf(t *testing.T) *informertest.Durable {
	t.Helper()
	d := informertest.NewDurable()
	if err := d.Apply(t.Context(), []informer.Change{add("a", "1"), add("b", "1"), del("gone")}, "10"); err != nil {
		t.Fatal(err)
	}
	return d
}

const asMade = "10: a=1 b=1, gone: uid-gone" // the contents of a store from durableOf

// heldBy returns the contents of a store: "bookmark: name=value …, gone: uid …".
func heldBy(t *testing.T, d *informertest.Durable) string {
	t.Helper()
	text := must(d.Resume(t.Context())) + ":"
	for _, e := range must(d.Scan(t.Context(), "", 100)) {
		text += " " + e.Object.GetName() + "=" + e.Object.(*corev1.ConfigMap).Data["value"]
	}
	var gone []string
	for _, e := range must(d.Tombstones(t.Context())) {
		gone = append(gone, " "+string(e.Object.GetUID()))
	}
	slices.Sort(gone)
	return text + ", gone:" + strings.Join(gone, "")
}

func wantHeld(t *testing.T, d *informertest.Durable, want string) {
	t.Helper()
	if got := heldBy(t, d); got != want {
		t.Errorf("it holds %q, want %q", got, want)
	}
}

func TestADurableThatHasCrashedDoesNothing(t *testing.T) {
	for _, o := range durableOps {
		t.Run(o.op, func(t *testing.T) {
			d := durableOf(t)
			d.Crash()
			d.Crash()
			calls := d.Calls(o.op)
			err := o.do(t.Context(), d)
			if d.Calls(o.op) != calls+1 {
				t.Errorf("%d calls", d.Calls(o.op)-calls)
			}
			if !errors.Is(err, fs.ErrClosed) || !strings.Contains(err.Error(), o.op) || !strings.Contains(err.Error(), o.key) {
				t.Errorf("it returned %v", err)
			}
			wantHeld(t, d.Reopen(), asMade)
		})
	}
}

func TestADurableMayCrashBeforeOrAfterAnyEffect(t *testing.T) {
	changed := map[string]string{
		"apply":  "20: a=1 b=1 c=1, gone: uid-gone",
		"forget": "10: a=1 b=1, gone:",
	}
	for _, o := range durableOps {
		t.Run(o.op, func(t *testing.T) {
			for _, returned := range []error{nil, errors.New("mine")} {
				before, after := durableOf(t), durableOf(t)
				crash := func(d *informertest.Durable) func(op, key string) error {
					return func(op, key string) error {
						if op != o.op || key != o.key {
							t.Errorf("asked about %s of %q", op, key)
						}
						d.Crash()
						return returned
					}
				}
				before.Fail(crash(before))
				after.FailAfter(crash(after))
				for _, d := range []*informertest.Durable{before, after} {
					if err := o.do(t.Context(), d); !errors.Is(err, fs.ErrClosed) {
						t.Errorf("it returned %v", err)
					}
				}
				want := asMade
				wantHeld(t, before.Reopen(), want)
				if effect := changed[o.op]; effect != "" {
					want = effect
				}
				wantHeld(t, after.Reopen(), want)
			}
		})
	}
}

func TestACallThatFailsAfterItsEffectHasTheEffect(t *testing.T) {
	mine := errors.New("mine")
	d := durableOf(t)
	d.FailAfter(func(string, string) error { return mine })
	changes := []informer.Change{del("a"), addAgain("a", "2")}
	if err := d.Apply(t.Context(), changes, "20"); !errors.Is(err, mine) {
		t.Errorf("apply returned %v", err)
	}
	d.Heal()
	const want = "20: a=2 b=1, gone: uid-a uid-gone"
	wantHeld(t, d, want)
	if err := errors.Join(d.Apply(t.Context(), changes, "20"), d.Err()); err != nil {
		t.Errorf("the second time: %v", err)
	}
	wantHeld(t, d, want)
}

func TestOperationsThatFailReturnNothing(t *testing.T) {
	d := durableOf(t)
	d.FailAfter(func(string, string) error { return errors.New("mine") })
	rv, err := d.Resume(t.Context())
	objs, scanErr := d.Scan(t.Context(), "", 9)
	gone, goneErr := d.Tombstones(t.Context())
	item, exists, getErr := d.Get(t.Context(), "default/a")
	if rv != "" || objs != nil || gone != nil || item != nil || exists {
		t.Errorf("got %q, %v, %v, %v, %v", rv, objs, gone, item, exists)
	}
	if err == nil || scanErr == nil || goneErr == nil || getErr == nil {
		t.Errorf("got %v, %v, %v, %v", err, scanErr, goneErr, getErr)
	}
}

func TestTheNextProcessFindsCopiesAndNothingWrong(t *testing.T) {
	d := durableOf(t)
	first := must(d.Scan(t.Context(), "", 1))[0]
	if again, _, err := d.Get(t.Context(), "default/a"); again != first.Object {
		t.Errorf("one process is handed two objects: %v, %v", again, err)
	}
	d.FailRandomly(1, 1)
	d.Hang()
	d.Delay(time.Hour)
	d.LoseOnCrash(9)
	next := d.Reopen()
	if err := next.Apply(t.Context(), []informer.Change{add("c", "1")}, "20"); err != nil {
		t.Fatal(err)
	}
	second := must(next.Scan(t.Context(), "", 1))[0]
	if second.Object == first.Object || !cmp.Equal(first, second) {
		t.Errorf("the next process finds %p %v, want another than %p %v", second.Object, second, first.Object, first)
	}
	gone := must(next.Tombstones(t.Context()))[0]
	if third := next.Reopen(); must(third.Tombstones(t.Context()))[0].Object == gone.Object {
		t.Error("the next process finds the very tombstone")
	} else {
		wantHeld(t, third, "20: a=1 b=1 c=1, gone: uid-gone") // LoseOnCrash ends with its process
	}
	if _, err := next.Resume(t.Context()); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("the one that was reopened returned %v", err)
	}
	wantHeld(t, d.Reopen(), asMade) // changes of the first reopened store do not show here
}

func TestACrashTakesTheLastWritesAlong(t *testing.T) {
	states := []string{
		asMade,
		"20: a=1 b=1 c=1, gone: uid-gone",
		"20: a=1 b=1 c=1, gone:",
		"30: a=1 b=1 c=1, gone:",
		"40: a=1 b=1 c=1 d=1, gone:",
	}
	for lost := range 6 {
		d := durableOf(t)
		d.LoseOnCrash(lost)
		for _, err := range []error{
			d.Apply(t.Context(), []informer.Change{add("c", "1")}, "20"),
			d.Forget(t.Context(), map[string][]types.UID{"default/gone": {"uid-gone"}}),
			d.Apply(t.Context(), nil, "30"),
			d.Apply(t.Context(), []informer.Change{add("d", "1")}, "40"),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		wantHeld(t, d, states[4])
		wantHeld(t, d.Reopen(), states[max(0, 4-lost)])
	}
}

func TestWritesBeforeLoseOnCrashAreNotLost(t *testing.T) {
	d := informertest.NewDurable()
	d.LoseOnCrash(5)
	_ = d.Apply(t.Context(), []informer.Change{add("a", "1")}, "10")
	d.LoseOnCrash(5)
	_ = d.Apply(t.Context(), []informer.Change{add("b", "1")}, "20")
	wantHeld(t, d.Reopen(), "10: a=1, gone:")

	d = informertest.NewDurable()
	d.LoseOnCrash(5)
	_ = d.Apply(t.Context(), []informer.Change{add("a", "1")}, "10")
	d.LoseOnCrash(0)
	wantHeld(t, d.Reopen(), "10: a=1, gone:")
}

func TestAWaitingCallReturnsWhenItsCtxEnds(t *testing.T) {
	for _, o := range durableOps {
		t.Run(o.op, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for _, wait := range []func(d *informertest.Durable){
					func(d *informertest.Durable) { d.Hang() },
					func(d *informertest.Durable) { d.Delay(time.Hour) },
				} {
					d := durableOf(t)
					wait(d)
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					begin := time.Now()
					if err := o.do(ctx, d); !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != time.Minute {
						t.Errorf("it returned %v after %v", err, time.Since(begin))
					}
					cancel()
					d.Heal()
					if err := o.do(ctx, d); !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("with a ctx that is done it returned %v", err)
					}
					wantHeld(t, d, asMade)
				}
			})
		})
	}
}

func TestACrashEndsHangingCalls(t *testing.T) {
	for _, o := range durableOps {
		t.Run(o.op, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := durableOf(t)
				d.Hang()
				done := make(chan error)
				go func() { done <- o.do(t.Context(), d) }()
				time.Sleep(time.Hour) // time passes only if it is durably blocked
				begin := time.Now()
				d.Crash()
				if err := <-done; time.Since(begin) > 0 || !errors.Is(err, fs.ErrClosed) {
					t.Errorf("it returned %v after %v", err, time.Since(begin))
				}
				wantHeld(t, d.Reopen(), asMade)
			})
		})
	}
}

func TestADurableAndAStoreMayBeUsedAndChangedFromAnyGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, s := durableOf(t), informertest.NewStore(nil)
		var all sync.WaitGroup
		all.Go(func() {
			for i := range 200 {
				change := []informer.Change{add(fmt.Sprint("o", i%7), fmt.Sprint(i))}
				for d.Apply(t.Context(), change, fmt.Sprint(i)) != nil {
					time.Sleep(time.Second)
				}
			}
		})
		for range 3 {
			all.Go(func() {
				for range 50 {
					for _, o := range durableOps {
						if !slices.Contains([]string{"apply", "forget"}, o.op) {
							_ = o.do(t.Context(), d)
						}
					}
				}
			})
		}
		for n := range 4 {
			all.Go(func() {
				obj := configMap(fmt.Sprint("o", n), "")
				for range 50 {
					switch _, exists, err := s.Get(obj); {
					case err != nil:
					case exists:
						_ = s.Delete(obj)
					default:
						_ = s.Add(obj)
					}
					s.List()
				}
			})
		}
		for _, faults := range []*informertest.StoreFaults{d.StoreFaults, s.StoreFaults} {
			all.Go(func() {
				for i := range uint64(50) {
					faults.FailRandomly(i, 0.3)
					d.LoseOnCrash(int(i % 3))
					release := faults.Hang()
					faults.Delay(time.Duration(i%3) * time.Second)
					time.Sleep(time.Second)
					release()
					faults.Fail(func(string, string) error { return nil })
					faults.FailAfter(nil)
					_ = faults.Calls("get")
				}
				faults.Heal()
			})
		}
		all.Wait()
		if err := errors.Join(d.Err(), s.Err()); err != nil {
			t.Error(err)
		}
	})
}
