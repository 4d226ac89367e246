package source_test

import (
	"errors"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/customcacheinformer/informer/internal/testkit"
)

var errBusy = apierrors.NewTooManyRequests("storage is (re)initializing", 1)

func TestASourceResumesAtAVersionAndListsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startAlone(t, streaming(), "7", lists("9"), sends())
		p.expect(lines("probe", "watch from 7"), nil, nil)
		p.after(99*time.Millisecond, nil, nil, nil)
		p.after(time.Millisecond, nil, lines("resumed 7"), nil)
	})
}

func TestASourceListsIfTheServerHasForgottenTheVersion(t *testing.T) {
	expired := watch.Event{Type: watch.Error, Object: &errExpired.ErrStatus}
	for name, refused := range map[string]answer{"at once": fails(errExpired), "in the stream": sends(expired)} {
		t.Run(name, scene{
			opts: aloneOptions(), version: "7",
			script:   []answer{lists("9"), refused, lists("9", versioned("a", "8")), sends()},
			takes:    5 * time.Second,
			asked:    lines("probe", "watch from 7", "list as of 7", "watch from 9"),
			received: lines(`list [a] at "9"`),
		}.play)
	}
}

func TestTheVersionOfAProbeDecidesWhetherASourceResumes(t *testing.T) {
	playAll(t, map[string]scene{
		"newer, and the first event comes after Resumed": {
			opts: aloneOptions(), version: "7",
			script:   []answer{lists("9"), sends(modified("a", "8"))},
			asked:    lines("probe", "watch from 7"),
			received: lines("resumed 7", `upsert a, at "8"`),
		},
		"older": {
			opts: aloneOptions(), version: "7",
			script:   []answer{lists("3"), lists("4", versioned("a", "4"))},
			asked:    lines("probe", "list the newest", "watch from 4"),
			received: lines(`list [a] at "4", went back`),
			told:     lines(wentBack("7", "4")),
		},
		"one that cannot be compared": {
			opts: aloneOptions(), version: "7",
			script:   []answer{lists("v1"), lists("8")},
			asked:    lines("probe", "list as of 0", "watch from 8"),
			received: lines(`list [] at "8"`),
		},
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
		p.forget()
		p.goOn(lists("9"), sends(bookmark("9")))
		p.after(time.Second, lines("probe", "watch from 7"), lines("resumed 7", "bookmark 9"), nil)
	})
}

// A busy server is not made to list at once, but it cannot keep the source from listing forever.
func TestABusySourceIsListedAfterAMinute(t *testing.T) {
	for name, refused := range map[string][]answer{"the probe": {fails(errBusy)}, "the watch": {lists("9"), fails(errBusy)}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := startAlone(t, aloneOptions(), "7", slices.Repeat(refused, 60)...)
				time.Sleep(59 * time.Second)
				if asked, _, _ := p.counts(); asked != 60*len(refused) {
					t.Fatalf("%d requests in a minute", asked)
				}
				p.forget()
				p.goOn(append(refused, lists("10"))...)
				p.after(3*time.Second, append(lines("probe", "watch from 7")[:len(refused)], "list the newest", "watch from 10"), lines(`list [] at "10"`), nil)
			})
		})
	}
}

// A server that is away between two moments in which it is busy is not busy all the time.
func TestAnOutageEndsTheMinuteOfABusySource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		script := []answer{fails(errBusy)}
		for range 100 {
			script = append(script, fails(errRefused))
		}
		p := startAlone(t, aloneOptions(), "7", append(script, fails(errBusy), lists("9"), sends(bookmark("9")))...)
		testkit.SleepBubble(101500 * time.Millisecond)
		p.forget()
		p.after(time.Second, lines("probe", "watch from 7"), lines("resumed 7", "bookmark 9"), nil)
	})
}

func TestAServerThatRefusesTheProbeIsTrusted(t *testing.T) {
	refused := fails(apierrors.NewBadRequest("no reads of the newest state"))
	playAll(t, map[string]scene{
		"at the start": {
			opts: aloneOptions(), version: "7",
			script:   []answer{refused, sends(modified("a", "8"))},
			asked:    lines("probe", "watch from 7"),
			received: lines("resumed 7", `upsert a, at "8"`),
		},
		"after an outage": {
			opts:     aloneOptions(),
			script:   []answer{lists("5"), ends(modified("a", "8")), fails(errRefused), refused, lists("9"), sends()},
			takes:    time.Minute,
			asked:    lines("list as of 0", "watch from 5", "watch from 8", "probe", "list as of 8", "watch from 9"),
			received: lines(`list [] at "5"`, `upsert a, at "8"`, `list [] at "9"`),
			told:     lines("watch failed: " + errRefused.Error()),
		},
	})
}

func TestAServerThatComesBackWithAnOlderStateIsListed(t *testing.T) {
	for name, outage := range map[string]error{
		"no route":           errRefused,
		"refused":            dialing(syscall.ECONNREFUSED), // the reflector retries this and the next by itself
		"busy":               errBusy,
		"a gateway":          errInternal,
		"a proxy sends HTML": errors.New("<html>"),
	} {
		t.Run(name, scene{
			opts:     aloneOptions(),
			script:   []answer{lists("5"), ends(modified("a", "8")), fails(outage), lists("6"), lists("6", versioned("b", "6")), sends()},
			takes:    time.Minute,
			asked:    lines("list as of 0", "watch from 5", "watch from 8", "probe", "list the newest", "watch from 6"),
			received: lines(`list [] at "5"`, `upsert a, at "8"`, `list [b] at "6", went back`),
			told:     lines("watch failed: "+outage.Error(), wentBack("8", "6")),
		}.play)
	}
}

func TestAServerThatWasUnreachableIsProbedOnceAndNothingIsListed(t *testing.T) {
	scene{
		opts:     aloneOptions(),
		script:   []answer{lists("5"), fails(dialing(syscall.ECONNREFUSED)), lists("8"), ends(modified("a", "8")), ends(modified("a", "9")), sends()},
		takes:    time.Minute,
		asked:    lines("list as of 0", "watch from 5", "probe", "watch from 5", "watch from 8", "watch from 9"),
		received: lines(`list [] at "5"`, `upsert a, at "8"`, `upsert a, at "9"`),
		told:     lines("watch failed: " + dialing(syscall.ECONNREFUSED).Error()),
	}.play(t)
}

func TestAServerThatHasFailedIsProbed(t *testing.T) {
	playAll(t, map[string]scene{
		"once, and the source continues": {
			opts:     aloneOptions(),
			script:   []answer{lists("5"), ends(modified("a", "8")), fails(errInternal), lists("9"), lists("9"), ends(bookmark("9"))},
			takes:    time.Minute,
			asked:    lines("list as of 0", "watch from 5", "watch from 8", "probe", "list as of 8", "watch from 9", "watch from 9"),
			received: lines(`list [] at "5"`, `upsert a, at "8"`, `list [] at "9"`, "bookmark 9"),
			told:     lines("watch failed: starting"),
		},
		"again, after a probe that fails, which is reported": {
			opts:     aloneOptions(),
			script:   []answer{lists("5"), fails(errInternal), fails(errInternal), {list: versioned("a", "1")}, lists("4"), lists("4")},
			takes:    10 * time.Second,
			asked:    lines("list as of 0", "watch from 5", "probe", "probe", "probe", "list the newest", "watch from 4"),
			received: lines(`list [] at "5"`, `list [] at "4", went back`),
			told: lines("watch failed: starting", "list failed: starting",
				"list failed: *v1.ConfigMap is not a list: object does not implement the List interfaces", wentBack("5", "4")),
		},
		"again, after a probe that fails in another way": {
			opts:     aloneOptions(),
			script:   []answer{lists("5"), fails(dialing(syscall.ECONNREFUSED)), fails(errBusy), lists("4"), lists("4")},
			takes:    10 * time.Second,
			asked:    lines("list as of 0", "watch from 5", "probe", "probe", "list the newest", "watch from 4"),
			received: lines(`list [] at "5"`, `list [] at "4", went back`),
			told:     lines("watch failed: "+dialing(syscall.ECONNREFUSED).Error(), "watch failed: "+errBusy.Error(), wentBack("5", "4")),
		},
		"twice, because a front may refuse to ask for one object, and yet let lists pass": {
			opts:     aloneOptions(),
			script:   []answer{lists("5"), fails(errInternal), fails(errForbidden), fails(errForbidden), lists("6")},
			takes:    10 * time.Second,
			asked:    lines("list as of 0", "watch from 5", "probe", "probe", "list the newest", "watch from 6"),
			received: lines(`list [] at "5"`, `list [] at "6"`),
			told:     lines("watch failed: starting", "list failed: configmaps is forbidden: no"),
		},
		"not, if a list is older than the last event": {
			opts:     aloneOptions(),
			script:   []answer{lists("5"), ends(modified("a", "8"), watch.Event{Type: watch.Error, Object: &errExpired.ErrStatus}), lists("6")},
			takes:    10 * time.Second,
			asked:    lines("list as of 0", "watch from 5", "list as of 8", "watch from 6"),
			received: lines(`list [] at "5"`, `upsert a, at "8"`, `list [] at "6", went back`),
			told:     lines(wentBack("8", "6")),
		},
	})
}

func TestAStreamAsksASuspectServerForTheNewestState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(complete("8"))
		p := startAlone(t, streaming(), "", watches(w), lists("6"), sends(complete("6")))
		p.expect(lines("stream"), lines(`list [] at "8"`), nil)
		w.send(watch.Event{Type: watch.Error})
		p.after(10*time.Second, lines("probe", "stream"), lines(`list [] at "6", went back`),
			lines("watch failed: the watch reports an error and does not say which", wentBack("8", "6")))
	})
}
