package restart_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/version"
)

// versionFollower is a watcher that keeps its state wherever OnVersion promises that it is exact.
type versionFollower struct {
	t       *testing.T
	state   map[string]string
	version string // "" while the state is not exact
	exact   []exactState
	ceased  int // how often the state has ceased to be exact
}

type exactState struct {
	version string
	state   map[string]string
}

type versionWatcher struct {
	informer.WatcherFunc[configMap]
	onVersion func(version string)
}

func (w versionWatcher) OnVersion(_ context.Context, v version.Exact) { w.onVersion(string(v)) }

func ignoreEvent(context.Context, event) error { return nil }

// unmerged are the options that a follower needs.
var unmerged = informer.WatcherOptions{MaxBacklog: -1}

func follow(t *testing.T, inf *ci) *versionFollower {
	f := &versionFollower{t: t, state: map[string]string{}}
	take := func(_ context.Context, e event) error { f.take(e); return nil }
	addWatcher(t, inf, versionWatcher{take, f.onVersion}, unmerged)
	return f
}

func (f *versionFollower) take(e event) {
	obj := e.Object()
	if e.Type == informer.EventDeleted {
		delete(f.state, obj.Name)
	} else {
		f.state[obj.Name] = obj.ResourceVersion
	}
	switch {
	case f.version == "":
	case e.Origin != informer.OriginWatch:
		f.t.Errorf("a %v event of %s comes while the state is exact", e.Origin, obj.Name)
	case number(obj.ResourceVersion) <= number(f.version):
		f.t.Errorf("%v %s has version %s, after %s", e.Type, obj.Name, obj.ResourceVersion, f.version)
	default:
		f.version = obj.ResourceVersion
		f.keep()
	}
}

func (f *versionFollower) onVersion(version string) {
	switch {
	case version == "":
		f.ceased++
	case f.version != "" && number(version) < number(f.version):
		f.t.Errorf("OnVersion(%s) after version %s", version, f.version)
	}
	f.version = version
	if version != "" {
		f.keep()
	}
}

func (f *versionFollower) keep() {
	f.exact = append(f.exact, exactState{f.version, maps.Clone(f.state)})
}

// check compares the states with those of the source.
func (f *versionFollower) check(src *followed) {
	f.t.Helper()
	for _, e := range f.exact {
		if want, known := src.states[e.version]; !known || !maps.Equal(e.state, want) {
			f.t.Errorf("at version %s the watcher had %v, want %v", e.version, e.state, want)
		}
	}
}

func number(version string) int {
	n, err := strconv.Atoi(version)
	if err != nil {
		panic(err)
	}
	return n
}

// followed is a source that knows its state at each version, and the storms over it.
type followed struct {
	*source
	states map[string]map[string]string // by version: the version of each object, by name
	rnd    *rand.Rand
}

func newFollowed(rnd *rand.Rand) *followed {
	f := &followed{informertest.NewSource(numbered(5)...), map[string]map[string]string{}, rnd}
	f.note()
	return f
}

// note keeps the present state.
func (f *followed) note() {
	state := map[string]string{}
	for _, obj := range f.Objects() {
		state[obj.Name] = obj.ResourceVersion
	}
	f.states[f.ResourceVersion()] = state
}

func (f *followed) change(name string) {
	f.Apply(object(name, "2"))
	f.note()
}

// transform fails for every tenth value at random, but not for "1" and "2".
func transform(obj configMap) (configMap, error) {
	if value := obj.Data["value"]; len(value) > 1 && strings.HasSuffix(value, "7") {
		return nil, errors.New("cannot be transformed")
	}
	return obj, nil
}

// repair changes the objects for which transform fails.
func (f *followed) repair() {
	for _, obj := range f.Objects() {
		if _, err := transform(obj); err != nil {
			f.change(obj.Name)
		}
	}
}

// storm makes changes, and disturbs the source.
func (f *followed) storm(steps int) {
	for range steps {
		name := fmt.Sprintf("o%03d", f.rnd.IntN(8))
		switch n := f.rnd.IntN(20); {
		case n < 9:
			f.Apply(object(name, fmt.Sprint(f.rnd.Int())))
		case n < 14:
			_, _ = f.Delete(keyOf(name))
		case n == 14:
			f.Bookmark()
		case n == 15:
			f.Disconnect()
		case n == 16:
			f.Expire()
		case n == 17:
			f.SetFaults(informertest.Faults{Mute: true})
		case n == 18:
			f.SetFaults(informertest.Faults{})
			f.Disconnect()
		default:
			time.Sleep(time.Duration(f.rnd.IntN(3000)) * time.Millisecond)
		}
		f.note()
		if f.rnd.IntN(3) == 0 {
			synctest.Wait()
		}
	}
	f.SetFaults(informertest.Faults{})
	f.Disconnect()
}

func TestAWatcherThatFollowsVersionsHasTheExactStateOfEach(t *testing.T) {
	rounds := longOrShort(300, 30)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	checked, ceased := 0, 0
	for round := range rounds {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, uint64(round)))
			src := newFollowed(rnd)
			opts := options{Queue: informer.QueueRealFIFO, ErrorHandler: ignore}
			if rnd.IntN(2) == 0 {
				opts.Transform = transform
			}
			opts.WatchList = []informer.WatchListMode{informer.WatchListOn, informer.WatchListOff}[rnd.IntN(2)]
			opts.Intake = []informer.IntakeMode{informer.IntakeWhole, informer.IntakeEarly}[rnd.IntN(2)]
			var store *informertest.Durable
			if rnd.IntN(2) == 0 {
				store = informertest.NewDurable()
				store.FailRandomly(seed, 0.1)
			}
			for range 1 + rnd.IntN(2) { // a second process continues from the store
				if store != nil {
					opts.Durable = store
				}
				inf := newInformer(t, src.source, opts)
				first := follow(t, inf)
				stop := start(t, inf)
				src.storm(rnd.IntN(40))
				later := follow(t, inf)
				src.storm(rnd.IntN(40))
				src.repair()
				sleepBubble(time.Hour)
				for _, f := range []*versionFollower{first, later} {
					equal(t, "version at the end", f.version, src.ResourceVersion())
					f.check(src)
					checked, ceased = checked+len(f.exact), ceased+f.ceased
				}
				stop()
				if store != nil {
					store = store.Reopen()
				}
				src.storm(rnd.IntN(5))
			}
		})
		if t.Failed() {
			t.Fatalf("round %d of seed %d failed", round, seed)
		}
	}
	if ceased == 0 {
		t.Error("no state has ceased to be exact, so no list was made")
	}
	t.Logf("%d states compared, %d times a state ceased to be exact", checked, ceased)
}

func TestAWatcherBeginsWithTheVersionOfTheDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFollowed(nil)
		store := informertest.NewDurable()
		stop := start(t, newInformer(t, src.source, options{Durable: store}))
		sleepBubble(time.Minute)
		stop()
		before := src.ResourceVersion()
		src.change("o001")

		inf := newInformer(t, src.source, options{Durable: store.Reopen()})
		var versions []string
		addWatcher(t, inf, versionWatcher{ignoreEvent, func(v string) { versions = append(versions, v) }}, unmerged)
		f := follow(t, inf)
		start(t, inf)
		sleepBubble(time.Minute)
		if len(versions) == 0 || versions[0] != before {
			t.Errorf("the versions are %v, want %s first", versions, before)
		}
		f.check(src)
		equal(t, "version", f.version, src.ResourceVersion())
		equal(t, "how often the state ceased to be exact", f.ceased, 0)
	})
}

func TestARefusedObjectEndsTheExactState(t *testing.T) {
	for _, kind := range []string{"plain", "Durable"} {
		inBubble(t, kind, func(t *testing.T) {
			src := newFollowed(nil)
			opts := options{Queue: informer.QueueRealFIFO, ErrorHandler: ignore}
			plain, kept := informertest.NewStore(nil), informertest.NewDurable()
			fail := kept.Fail
			if kind == "plain" {
				opts.Store, fail = plain, plain.Fail
			} else {
				opts.Durable = kept
			}
			inf := newInformer(t, src.source, opts)
			f := follow(t, inf)
			start(t, inf)
			sleepBubble(time.Minute)
			equal(t, "version", f.version, src.ResourceVersion())
			fail(func(op, key string) error {
				return errorIf(key == "default/o001" && (op == "apply" || op == "update"), errRefuses)
			})
			src.change("o001")
			synctest.Wait()
			equal(t, "version after an object was refused", f.version, "")
			src.change("o002")
			sleepBubble(time.Minute)
			equal(t, "version later", f.version, "")
		})
	}
}

func TestAFailedTransformEndsTheExactStateUntilTheObjectChanges(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, src *followed){
		"a write": func(_ *testing.T, src *followed) { src.change("o001") },
		"a delete": func(t *testing.T, src *followed) {
			_, err := src.Delete(keyOf("o001"))
			must(t, err)
			src.note()
		},
	} {
		inBubble(t, name, func(t *testing.T) {
			src := newFollowed(nil)
			inf := newInformer(t, src.source, options{Queue: informer.QueueRealFIFO, ErrorHandler: ignore, Transform: transform})
			f := follow(t, inf)
			start(t, inf)
			sleepBubble(time.Minute)
			src.Apply(object("o001", "17"))
			src.note()
			synctest.Wait()
			equal(t, "version after a failure", f.version, "")
			src.change("o002")
			sleepBubble(time.Minute)
			equal(t, "version after a change of another object", f.version, "")
			change(t, src)
			synctest.Wait()
			equal(t, "version", f.version, src.ResourceVersion())
			f.check(src)
		})
	}
}

func TestTooManyFailuresOfTransformEndTheExactStateUntilAList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFollowed(nil)
		inf := newInformer(t, src.source, options{Queue: informer.QueueRealFIFO, ErrorHandler: ignore, Transform: transform})
		f := follow(t, inf)
		start(t, inf)
		sleepBubble(time.Minute)
		for _, value := range []string{"17", "2"} {
			for n := range 1001 {
				src.Apply(object(fmt.Sprintf("o%04d", n), value))
			}
		}
		src.note()
		sleepBubble(time.Hour)
		equal(t, "version", f.version, "")
		src.Expire()
		src.note()
		sleepBubble(time.Hour)
		equal(t, "version after a list", f.version, src.ResourceVersion())
		f.check(src)
	})
}

func TestOnVersionNeedsAnOrderOfVersions(t *testing.T) {
	src := informertest.NewSource[configMap]()
	follower := versionWatcher{ignoreEvent, func(string) {}}
	merging, workers, retry := unmerged, unmerged, unmerged
	merging.MaxBacklog, workers.Workers = 0, 2
	retry.Retry = informer.Backoff(time.Second, time.Second, 1)
	ordered := options{Queue: informer.QueueRealFIFO}
	for name, test := range map[string]struct {
		inf  *ci
		opts informer.WatcherOptions
	}{
		"QueueRealFIFO": {newInformer(t, src, options{}), unmerged},
		"MaxBacklog":    {newInformer(t, src, ordered), merging},
		"Workers":       {newInformer(t, src, ordered), workers},
		"Retry":         {newInformer(t, src, ordered), retry},
	} {
		_, err := test.inf.AddWatcher(follower, test.opts)
		errorSays(t, err, name)
	}
	spaces, err := informer.NewInNamespaces(src.Namespace, []string{"a", "b"}, ordered)
	must(t, err)
	_, err = spaces.AddWatcher(follower, unmerged)
	errorSays(t, err, "namespaces")
}

func TestAPanicOfOnVersionCanBeRecovered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var panicked *informer.PanicError
		inf := newInformer(t, informertest.NewSource(numbered(3)...), options{Queue: informer.QueueRealFIFO, ErrorHandler: func(_ context.Context, err error) {
			errors.As(err, &panicked)
		}})
		addWatcher(t, inf, versionWatcher{ignoreEvent, func(string) { panic("no") }}, informer.WatcherOptions{MaxBacklog: -1, RecoverPanics: true})
		start(t, inf)
		sleepBubble(time.Minute)
		if panicked == nil || panicked.Value != "no" {
			t.Errorf("the error is %v, want a PanicError", panicked)
		}
	})
}
