package source_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/customcacheinformer/informer/internal/source"
	"github.com/customcacheinformer/informer/internal/stopwatch"
)

func TestAStreamOfTheFirstStateReachesTheSinkAsAList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startAlone(t, streaming(), "", sends(added("a", "1"), added("b", "2"), complete("5"), deleted("a", "6"), bookmark("9")))
		p.expect(lines("stream"), lines(`list [a b] at "5"`, `delete a, at "6"`, "bookmark 9"), nil)
		if got := p.source.LastVersion(); got != "9" {
			t.Errorf("the last version is %q", got)
		}
		s := p.source.Status()
		if !s.Watching || s.LastList.IsZero() || s.LastContact.IsZero() || s.Failure != nil {
			t.Errorf("while it watches, the status is %+v", s)
		}
	})
}

func TestASilentStreamIsReplacedByLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(modified("x", "9")) // a modified event is not a part of the initial state
		p := startAlone(t, streaming(), "", watches(w), lists("5", versioned("a", "1")), fails(errExpired), lists("7"))
		p.expect(lines("stream"), nil, nil)
		p.after(9*time.Second, nil, nil, nil)
		w.send(modified("y", "10")) // nor does it lengthen the wait
		p.after(5*time.Second,
			lines("list as of 0", "watch from 5", "list as of 5", "watch from 7"),
			lines(`list [a] at "5"`, `list [] at "7"`), nil)
	})
}

// The reflector itself does not stop such a stream.
func TestAStreamWithAnObjectOfAnotherTypeFailsAndIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(watch.Event{Type: watch.Added, Object: &metav1.PartialObjectMetadata{}}, complete("5"))
		p := startAlone(t, streaming(), "", watches(w), lists("6"))
		p.after(5*time.Second, lines("stream", "list as of 0", "watch from 6"), lines(`list [] at "6"`), lines("list failed: no config map"))
		if w.send(bookmark("7")) {
			t.Error("the stream is still open")
		}
	})
}

func TestEventsThatCannotBeUsedAreReportedAndDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startAlone(t, aloneOptions(), "", lists("5"), ends(
			bookmark(""),
			watch.Event{Type: watch.Modified},
			watch.Event{Type: "ODD", Object: versioned("a", "6")},
			modified("a", "7")))
		p.after(2*time.Second,
			lines("list as of 0", "watch from 5", "watch from 7"),
			lines(`list [] at "5"`, `upsert a, at "7"`),
			lines("unusable: a bookmark without a resourceVersion", "unusable: the object is nil", `unusable: unknown type of watch event "ODD"`))
	})
}

func TestAnErrorInTheStreamIsReportedAndTheServerProbed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startAlone(t, aloneOptions(), "", lists("5"), sends(watch.Event{Type: watch.Error}), lists("5"), lists("6"))
		p.after(5*time.Second,
			lines("list as of 0", "watch from 5", "probe", "list as of 5", "watch from 6"),
			lines(`list [] at "5"`, `list [] at "6"`),
			lines("watch failed: the watch reports an error and does not say which"))
	})
}

// The reflector lists after a watch that ends at once.

func TestWatchesThatEndAtOnceAreAFailureTheThirdTime(t *testing.T) {
	twice := scene{
		opts:     aloneOptions(),
		script:   []answer{lists("5"), ends(), lists("5"), ends(), lists("5")},
		takes:    time.Minute,
		asked:    lines("list as of 0", "watch from 5", "list as of 5", "watch from 5", "list as of 5", "watch from 5"),
		received: lines(`list [] at "5"`, `list [] at "5"`, `list [] at "5"`),
	}
	thrice := twice
	thrice.script = append(thrice.script, ends())
	thrice.asked = append(thrice.asked, "probe")
	thrice.told = lines("watch failed: watches end as soon as they have begun")
	playAll(t, map[string]scene{"twice": twice, "three times": thrice})
}

func TestAWatchThatLastsBetweenShortOnesMakesThemNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		long := open()
		time.AfterFunc(time.Minute, long.Stop)
		p := startAlone(t, aloneOptions(), "",
			lists("5"), ends(), lists("5"), ends(), lists("5"), watches(long), ends(), lists("5"), ends(), lists("5"))
		time.Sleep(5 * time.Minute)
		if asked, _, told := p.counts(); asked != 11 || told != 0 {
			t.Errorf("%d requests, %d reports", asked, told)
		}
	})
}

func TestWatchesAreOpenedASecondApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startAlone(t, aloneOptions(), "", lists("5"), ends(modified("a", "6")), ends(modified("a", "7")))
		p.expect(lines("list as of 0", "watch from 5"), lines(`list [] at "5"`, `upsert a, at "6"`), nil)
		p.after(999*time.Millisecond, nil, nil, nil)
		p.after(time.Millisecond, lines("watch from 6"), lines(`upsert a, at "7"`), nil)
		p.after(time.Second, lines("watch from 7"), nil, nil)
	})
}

func TestASilentWatchMakesAFailureGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startAlone(t, aloneOptions(), "", lists("5"), fails(errForbidden), lists("5"), lists("5"), sends())
		p.after(time.Second, lines("list as of 0", "watch from 5", "probe", "list as of 5", "watch from 5"),
			lines(`list [] at "5"`, `list [] at "5"`), lines("watch failed: configmaps is forbidden: no"))
		if f := p.source.Status().Failure; f == nil || f.Op != "watch" {
			t.Errorf("as soon as the watch is open, the failure is %+v", f)
		}
		p.after(time.Second, nil, nil, nil)
		if f := p.source.Status().Failure; f != nil {
			t.Errorf("a second later the failure is still %+v", f)
		}
	})
}

// A fake's watch panics if 100 events wait.
func TestAWatchIsReadAtOnceWhileTheSinkIsBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, stops := range []bool{false, true} {
			fake := watch.NewRaceFreeFake()
			p := &play{t: t, script: []answer{lists("5"), watches(fake)}}
			p.run(aloneOptions(), "")
			release := p.blockSink()
			for range 1000 {
				fake.Modify(versioned("a", "6"))
				synctest.Wait()
			}
			if !stops {
				release()
				fake.Stop()
				if _, got, _ := p.counts(); got != 1001 {
					t.Errorf("the sink has received %d calls", got)
				}
				continue
			}
			time.AfterFunc(time.Second, release)
			p.stop()
			if !fake.IsStopped() || p.source.Status().Watching {
				t.Errorf("after the source, the fake's watch has stopped: %v; %+v", fake.IsStopped(), p.source.Status())
			}
		}
	})
}

func TestALongBurstIsNotLostWhileTheSinkIsBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		burst := slices.Repeat([]watch.Event{modified("a", "6")}, 1000)
		p := &play{t: t, script: []answer{lists("5"), sends(burst...)}}
		release := p.blockSink()
		p.run(aloneOptions(), "")
		release()
		if _, got, _ := p.counts(); got != 1001 {
			t.Errorf("the sink has received %d calls", got)
		}

		p = &play{t: t, script: []answer{lists("5"), sends(burst...)}}
		time.AfterFunc(time.Second, p.blockSink())
		p.run(aloneOptions(), "")
		p.stop()
	})
}

// A list that is answered after the stop requests no further page.
func TestRunWaitsForCallsThatDoNotHeedTheirContext(t *testing.T) {
	for op, script := range map[string][]answer{
		"list":  {page("5", "2", versioned("a", "1"))},
		"watch": {lists("5"), sends()},
	} {
		synctest.Test(t, func(t *testing.T) {
			hold, opts := make(chan struct{}), aloneOptions()
			script[len(script)-1].hold, opts.PageSize = hold, 2
			p := startAlone(t, opts, "", script...)
			stopped := make(chan struct{})
			go func() { p.stop(); close(stopped) }()
			time.Sleep(time.Hour)
			select {
			case <-stopped:
				t.Errorf("Run has returned while a %s is under way", op)
			default:
			}
			if got := p.source.UnderWay(); !slices.Equal(got, lines(op)) {
				t.Errorf("under way: %v, want %s", got, op)
			}
			close(hold)
			<-stopped
			if asked, _, _ := p.counts(); op == "list" && asked != 1 || len(p.source.UnderWay()) != 0 {
				t.Errorf("%d requests; under way after Run: %v", asked, p.source.UnderWay())
			}
		})
	}
}

func TestEachRequestIsObserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := open(modified("a", "6"), modified("a", "7"))
		time.AfterFunc(time.Minute, slow.Stop)
		list, hold := lists("5", versioned("a", "1")), make(chan struct{})
		list.hold = hold // until the end of the stream has been observed
		time.AfterFunc(2*time.Second, func() { close(hold) })
		p := &play{t: t, tellsAll: true, script: []answer{
			fails(errForbidden), fails(errForbidden), ends(added("a", "1"), added("b", "2")), list, watches(slow),
		}}
		p.run(streaming(), "")
		p.after(59*time.Second,
			lines("stream", "list as of 0", "stream", "list as of 0", "watch from 5"),
			lines(`list [a] at "5"`, `upsert a, at "6"`, `upsert a, at "7"`),
			lines("watched 0 events in 0s, streaming true: configmaps is forbidden: no",
				"listed 0 objects in 0s: configmaps is forbidden: no",
				"list failed: configmaps is forbidden: no",
				"client-go: failed to list ConfigMap: configmaps is forbidden: no",
				"watch failed: the stream of the first state ended before it was complete",
				"watched 2 events in 0s, streaming true: the stream of the first state ended before it was complete",
				"listed 1 objects in 1s: <nil>"))
		p.after(10*time.Second, lines("watch from 7"), nil, lines("watched 2 events in 58s, streaming false: <nil>"))
	})
}

func TestTheSourceStopsDuringABackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts := aloneOptions()
		opts.Backoff.Duration = time.Hour
		throttled := apierrors.NewTooManyRequests("later", 1) // the reflector retries by itself
		p := startAlone(t, opts, "", lists("5"), fails(throttled))
		p.expect(lines("list as of 0", "watch from 5"), lines(`list [] at "5"`), lines("watch failed: later"))
		begun := time.Now()
		p.stop()
		if took := time.Since(begun); took != 0 {
			t.Errorf("stopping took %v", took)
		}
	})
}

func TestBeforeRunASourceHasSeenNothing(t *testing.T) {
	s := source.New(&play{}, stopwatch.New(), aloneOptions(), source.Callbacks{})
	if got := s.LastVersion(); got != "" {
		t.Errorf("the last version is %q", got)
	}
	if got := s.Status(); got != (source.Status{}) {
		t.Errorf("the status is %+v", got)
	}
}

func TestAStreamCutEachTimeIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var script []answer
		for range 5 {
			script = append(script, ends(added("a", "1")), fails(errForbidden))
		}
		p := startAlone(t, streaming(), "", script...)
		time.Sleep(time.Minute)
		if asked, _, told := p.counts(); asked != 11 || told != 2 {
			t.Errorf("%d requests, %d reports", asked, told)
		}
	})
}

func TestAnOpenedWatchIsALiveContact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		long := open(modified("a", "6"))
		time.AfterFunc(5*time.Minute, long.Stop)
		p := startAlone(t, aloneOptions(), "", lists("5"), watches(long), sends())
		time.Sleep(5*time.Minute + time.Second)
		asked, _, _ := p.counts()
		if got := time.Since(p.source.Status().LastContact); got > time.Second || asked != 3 {
			t.Errorf("the last contact was %v ago, after %d requests", got, asked)
		}
	})
}
