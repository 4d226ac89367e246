package source_test

import (
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
)

func TestASourceResumesAtAVersionAndListsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startAlone(t, streaming(), "7", lists("9"), sends())
		p.expect(lines("probe", "watch from 7"), nil, nil)
		p.after(99*time.Millisecond, nil, nil, nil)
		p.after(time.Millisecond, nil, lines("resumed 7"), nil)
	})
}

func TestTheFirstEventOfAResumedWatchComesAfterResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startAlone(t, aloneOptions(), "7", lists("9"), sends(modified("a", "8")))
		p.expect(lines("probe", "watch from 7"), lines("resumed 7", `upsert a, at "8"`), nil)
	})
}

func TestASourceListsIfTheServerHasForgottenTheVersion(t *testing.T) {
	expired := watch.Event{Type: watch.Error, Object: &errExpired.ErrStatus}
	for name, refused := range map[string]answer{"at once": fails(errExpired), "in the stream": sends(expired)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := startAlone(t, aloneOptions(), "7", lists("9"), refused, lists("9", versioned("a", "8")), sends())
				p.after(5*time.Second, lines("probe", "watch from 7", "list as of 7", "watch from 9"), lines(`list [a] at "9"`), nil)
			})
		})
	}
}

func TestASourceListsIfTheVersionIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startAlone(t, aloneOptions(), "7", lists("3"), lists("4", versioned("a", "4")))
		p.expect(lines("probe", "list the newest", "watch from 4"), lines(`list [a] at "4", went back`),
			lines("list failed: the server has gone back in time: its state of resourceVersion 4 takes the place of that of 7"))
	})
}

func TestASourceListsIfTheVersionsOfAProbeCannotBeCompared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startAlone(t, aloneOptions(), "7", lists("v1"), lists("8"))
		p.expect(lines("probe", "list as of 0", "watch from 8"), lines(`list [] at "8"`), nil)
	})
}

func TestASourceThatCannotBeReachedResumesLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var away []answer
		for range 1000 {
			away = append(away, fails(errRefused))
		}
		p := startAlone(t, aloneOptions(), "7", away...)
		time.Sleep(1000*time.Second - time.Millisecond)
		if asked, received, told := p.counts(); asked != 1000 || received != 0 || told != 1 {
			t.Errorf("%d requests, %d calls of the sink, %d reports", asked, received, told)
		}
		p.mu.Lock()
		p.asked, p.told = nil, nil
		p.mu.Unlock()
		p.goOn(lists("9"), sends(bookmark("9")))
		p.after(time.Second, lines("probe", "watch from 7"), lines("resumed 7", "bookmark 9"), nil)
	})
}

// A busy server is not made to list at once, but it cannot keep the source from listing forever.
func TestASourceThatIsBusyIsListedAfterAMinute(t *testing.T) {
	busy := apierrors.NewTooManyRequests("storage is (re)initializing", 1)
	for name, refused := range map[string][]answer{"the probe": {fails(busy)}, "the watch": {lists("9"), fails(busy)}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &play{t: t}
				for range 60 {
					p.script = append(p.script, refused...)
				}
				p.run(aloneOptions(), "7")
				time.Sleep(59 * time.Second)
				if asked, _, _ := p.counts(); asked != 60*len(refused) {
					t.Fatalf("%d requests in a minute", asked)
				}
				p.mu.Lock()
				p.asked, p.told = nil, nil
				p.mu.Unlock()
				p.goOn(append(refused, lists("10"))...)
				p.after(3*time.Second, append(lines("probe", "watch from 7")[:len(refused)], "list the newest", "watch from 10"), lines(`list [] at "10"`), nil)
			})
		})
	}
}

func TestAServerThatRefusesTheProbeIsTrusted(t *testing.T) {
	refused := fails(apierrors.NewBadRequest("no reads of the newest state"))
	synctest.Test(t, func(t *testing.T) {
		p := startAlone(t, aloneOptions(), "7", refused, sends(modified("a", "8")))
		p.expect(lines("probe", "watch from 7"), lines("resumed 7", `upsert a, at "8"`), nil)
	})
	synctest.Test(t, func(t *testing.T) {
		p := startAlone(t, aloneOptions(), "", lists("5"), ends(modified("a", "8")), fails(errRefused), refused, lists("9"), sends())
		p.after(time.Minute,
			lines("list as of 0", "watch from 5", "watch from 8", "probe", "list as of 8", "watch from 9"),
			lines(`list [] at "5"`, `upsert a, at "8"`, `list [] at "9"`), lines("watch failed: "+errRefused.Error()))
	})
}

func TestAServerThatComesBackWithAnOlderStateIsListed(t *testing.T) {
	for name, outage := range map[string]error{"refused": errRefused, "a gateway": errInternal} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := startAlone(t, aloneOptions(), "",
					lists("5"), ends(modified("a", "8")), fails(outage), lists("6"), lists("6", versioned("b", "6")), sends())
				p.after(time.Minute,
					lines("list as of 0", "watch from 5", "watch from 8", "probe", "list the newest", "watch from 6"),
					lines(`list [] at "5"`, `upsert a, at "8"`, `list [b] at "6", went back`),
					lines("watch failed: "+outage.Error(),
						"list failed: the server has gone back in time: its state of resourceVersion 6 takes the place of that of 8"))
			})
		})
	}
}

func TestAServerThatHasFailedIsProbedOnceAndGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startAlone(t, aloneOptions(), "",
			lists("5"), ends(modified("a", "8")), fails(errInternal), lists("9"), lists("9"), ends(bookmark("9")))
		p.after(time.Minute,
			lines("list as of 0", "watch from 5", "watch from 8", "probe", "list as of 8", "watch from 9", "watch from 9"),
			lines(`list [] at "5"`, `upsert a, at "8"`, `list [] at "9"`, "bookmark 9"),
			lines("watch failed: starting"))
	})
}

func TestAServerThatWasUnreachableIsProbedOnceAndNothingIsListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unreachable := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED} // the reflector retries by itself
		p := startAlone(t, aloneOptions(), "",
			lists("5"), fails(unreachable), lists("8"), ends(modified("a", "8")), ends(modified("a", "9")), sends())
		p.after(time.Minute,
			lines("list as of 0", "watch from 5", "probe", "watch from 5", "watch from 8", "watch from 9"),
			lines(`list [] at "5"`, `upsert a, at "8"`, `upsert a, at "9"`),
			lines("watch failed: dial tcp: connection refused"))
	})
}

func TestAProbeThatFailsIsReportedAndComesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startAlone(t, aloneOptions(), "",
			lists("5"), fails(errInternal), fails(errInternal), answer{list: versioned("a", "1")}, lists("4"), lists("4"))
		p.after(10*time.Second,
			lines("list as of 0", "watch from 5", "probe", "probe", "probe", "list the newest", "watch from 4"),
			lines(`list [] at "5"`, `list [] at "4", went back`),
			lines("watch failed: starting", "list failed: starting",
				"list failed: *v1.ConfigMap is no list: object does not implement the List interfaces",
				"list failed: the server has gone back in time: its state of resourceVersion 4 takes the place of that of 5"))
	})
}

// A front may refuse to ask for one object, and yet let lists pass.
func TestAServerThatRefusesProbesIsListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startAlone(t, aloneOptions(), "", lists("5"), fails(errInternal), fails(errForbidden), fails(errForbidden), lists("6"))
		p.after(10*time.Second,
			lines("list as of 0", "watch from 5", "probe", "probe", "list the newest", "watch from 6"),
			lines(`list [] at "5"`, `list [] at "6"`),
			lines("watch failed: starting", "list failed: configmaps is forbidden: no"))
	})
}

func TestAStreamAsksASuspectServerForTheNewestState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(complete("8"))
		p := startAlone(t, streaming(), "", watches(w), lists("6"), sends(complete("6")))
		p.expect(lines("stream"), lines(`list [] at "8"`), nil)
		w.events <- watch.Event{Type: watch.Error}
		p.after(10*time.Second,
			lines("probe", "stream"), lines(`list [] at "6", went back`),
			lines("watch failed: the watch reports an error and does not say which",
				"list failed: the server has gone back in time: its state of resourceVersion 6 takes the place of that of 8"))
	})
}

func TestAListThatIsOlderThanTheLastEventSaysThatTheServerWentBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startAlone(t, aloneOptions(), "",
			lists("5"), ends(modified("a", "8"), watch.Event{Type: watch.Error, Object: &errExpired.ErrStatus}), lists("6"))
		p.after(10*time.Second,
			lines("list as of 0", "watch from 5", "list as of 8", "watch from 6"),
			lines(`list [] at "5"`, `upsert a, at "8"`, `list [] at "6", went back`),
			lines("list failed: the server has gone back in time: its state of resourceVersion 6 takes the place of that of 8"))
	})
}
