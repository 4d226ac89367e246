package source_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strconv"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

var (
	errExpired   = apierrors.NewResourceExpired("too old")
	errInternal  = apierrors.NewServiceUnavailable("starting")
	errForbidden = apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "", errors.New("no"))
	errRefused   = &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("no route")}
)

const noVersion = "list failed: the list has no resourceVersion: the watch starts at some later state, and deletes in between are missed until the next list"

func TestEachKindOfListReachesTheSinkOrIsAFailure(t *testing.T) {
	paged := aloneOptions()
	paged.PageSize = 2
	playAll(t, map[string]scene{
		"pages": {
			opts: paged,
			script: []answer{
				page("5", "2", versioned("a", "1"), versioned("b", "2")), page("5", "", versioned("c", "3")), sends(modified("a", "6")),
			},
			asked:    lines("list the newest", "page 2", "watch from 5"),
			received: lines(`list [a b c] at "5"`, `upsert a, at "6"`),
		},
		"a later page has expired": {
			opts: paged,
			script: []answer{
				page("5", "2", versioned("a", "1"), versioned("b", "2")), fails(errExpired), lists("9", versioned("a", "1"), versioned("c", "8")),
			},
			asked:    lines("list the newest", "page 2", "list the newest, whole", "watch from 9"),
			received: lines(`list [a c] at "9"`),
		},
		"an object of another type": {
			opts:     aloneOptions(),
			script:   []answer{lists("5", versioned("a", "1"), &corev1.Secret{}), lists("6", versioned("a", "1"))},
			takes:    5 * time.Second,
			asked:    lines("list as of 0", "list as of 0", "watch from 6"),
			received: lines(`list [a] at "6"`),
			told:     lines("list failed: no config map"),
		},
		"no list, and no watch": {
			opts:     aloneOptions(),
			script:   []answer{{}, {list: (*corev1.ConfigMapList)(nil)}, {list: versioned("a", "1")}, lists("5"), {}},
			takes:    10 * time.Second,
			asked:    lines("list as of 0", "list as of 0", "list as of 0", "list as of 0", "watch from 5", "probe"),
			received: lines(`list [] at "5"`),
			told: lines("list failed: the source returned no list",
				"list failed: *v1.ConfigMap is not a list: object does not implement the List interfaces",
				"watch failed: the source returned no watch"),
		},
		"without a version, which is reported once": {
			opts: aloneOptions(),
			script: []answer{
				lists("", versioned("a", "1")), fails(errExpired), lists("", versioned("a", "1")),
				sends(added("b", "7"), added("a", "3"), modified("a", "8"), added("c", "9")),
			},
			takes: 10 * time.Second,
			asked: lines("list as of 0", "watch from ", "list as of 0", "watch from "),
			received: lines(`list [a] at ""`, `list [a] at ""`,
				// A watch without a start version sends its first objects in no order.
				`upsert b, at ""`, `upsert a, at ""`, `upsert a, at "8"`, `upsert c, at "9"`),
			told: lines(noVersion),
		},
		"without a version, later than an event with one": {
			opts:     aloneOptions(),
			script:   []answer{lists(""), ends(modified("a", "5")), fails(errExpired), lists(""), ends(deleted("a", ""))},
			takes:    5 * time.Second,
			asked:    lines("list as of 0", "watch from ", "watch from 5", "list as of 5", "watch from ", "watch from "),
			received: lines(`list [] at ""`, `upsert a, at "5"`, `list [] at ""`, `delete a, at ""`),
			told:     lines(noVersion),
		},
		"of a fake that counts from 0": {
			opts:     aloneOptions(),
			script:   []answer{lists("0"), ends(added("a", "1"))},
			takes:    5 * time.Second,
			asked:    lines("list as of 0", "watch from 0", "watch from 0"),
			received: lines(`list [] at "0"`, `upsert a, at ""`),
		},
		"a stream without a version": {
			opts:     streaming(),
			script:   []answer{sends(added("a", "1"), complete(""), deleted("a", "6"))},
			asked:    lines("stream"),
			received: lines(`list [a] at ""`, `delete a, at "6"`),
			told:     lines(noVersion),
		},
	})
}

func TestAListFromAVersionThatTheServerDoesNotTakeIsAskedForWithoutIt(t *testing.T) {
	scene{
		opts: aloneOptions(),
		script: []answer{
			lists("5"), ends(modified("a", "odd"), watch.Event{Type: watch.Error, Object: &errExpired.ErrStatus}),
			fails(apierrors.NewBadRequest("odd is not a version")), lists("7", versioned("a", "6")),
		},
		takes:    10 * time.Second,
		asked:    lines("list as of 0", "watch from 5", "list as of odd", "list the newest", "watch from 7"),
		received: lines(`list [] at "5"`, `upsert a, at "odd"`, `list [a] at "7"`),
		told:     lines(`list failed: a list from resourceVersion "odd": odd is not a version`),
	}.play(t)
}

func TestAFailureIsReportedOnceOfEachKindUntilItWorks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dial := func(port string) error {
			return &net.OpError{Op: "dial", Err: errors.New("port " + port)}
		}
		p := startAlone(t, aloneOptions(), "",
			fails(errForbidden), fails(errForbidden), fails(dial("1")), fails(dial("23")), fails(errForbidden))
		p.after(4500*time.Millisecond,
			lines("list as of 0", "list as of 0", "list as of 0", "list as of 0", "list as of 0"), nil,
			lines(`list failed: configmaps is forbidden: no`, "list failed: dial: port 1"))
		if s := p.source.Status(); s.Failures != 5 || s.Failure.Op != "list" || !s.LastContact.IsZero() {
			t.Errorf("after five failures: %+v", s)
		}
		p.goOn(lists("5"), fails(errForbidden), lists("5"), fails(errForbidden))
		p.after(time.Minute,
			lines("list as of 0", "watch from 5", "probe", "list as of 5", "list the newest"),
			lines(`list [] at "5"`),
			lines("watch failed: configmaps is forbidden: no", "list failed: configmaps is forbidden: no"))
	})
}

// These are answers to a request for a stream after which the reflector lists. If the list fails as well, it is the list
// that is reported.
func TestARefusedStreamIsNotAFailureIfAListWorks(t *testing.T) {
	for name, refusal := range map[string]error{
		"403":                       errForbidden,
		"405":                       apierrors.NewMethodNotSupported(schema.GroupResource{}, "watch"),
		"500":                       apierrors.NewInternalError(errors.New("boom")),
		"503":                       errInternal,
		"504":                       apierrors.NewTimeoutError("too slow", 1),
		"of no API server":          errors.New("no version"),
		"of a FakeControllerSource": &strconv.NumError{Func: "Atoi", Err: strconv.ErrSyntax},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := startAlone(t, streaming(), "", fails(refusal), lists("5"))
				p.expect(lines("stream", "list as of 0", "watch from 5"), lines(`list [] at "5"`), nil)
				if s := p.source.Status(); s.Failure != nil || s.Failures != 0 {
					t.Errorf("the status is %+v", s)
				}

				p = startAlone(t, streaming(), "", fails(refusal), fails(refusal), fails(refusal), fails(refusal))
				p.after(1500*time.Millisecond, lines("stream", "list as of 0", "stream", "list as of 0"), nil, lines(fmt.Sprintf("list failed: %v", refusal)))
				if s := p.source.Status(); s.Failure == nil || s.Failures != 2 {
					t.Errorf("when the list fails, the status is %+v", s)
				}
			})
		})
	}
}

// client-go would ask for the stream again, without a pause, for as long as the server answers so.
func TestAnExpiredStreamOfTheFirstStateIsFollowedByAList(t *testing.T) {
	scene{
		opts:     streaming(),
		script:   []answer{fails(errExpired), lists("5")},
		asked:    lines("stream", "list as of 0", "watch from 5"),
		received: lines(`list [] at "5"`),
	}.play(t)
}

func TestAServerThatRefusesAStreamIsProbedBeforeAList(t *testing.T) {
	scene{
		opts:     streaming(),
		script:   []answer{ends(complete("5"), modified("a", "6")), fails(errExpired), fails(errInternal), lists("4"), lists("4")},
		takes:    5 * time.Second,
		asked:    lines("stream", "watch from 6", "stream", "probe", "list the newest", "watch from 4"),
		received: lines(`list [] at "5"`, `upsert a, at "6"`, `list [] at "4", went back`),
		told:     lines(wentBack("6", "4")),
	}.play(t)
}

func TestAStreamWithoutAnAnswerIsReportedAtOnce(t *testing.T) {
	tooLarge := apierrors.NewTimeoutError("too large", 1)
	tooLarge.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}
	for name, c := range map[string]struct {
		failure error
		next    string // the next request, which hangs
	}{
		"no connection": {&url.Error{Op: "Get", URL: "https://api", Err: syscall.ECONNREFUSED}, "stream"},
		"a timeout":     {&url.Error{Op: "Get", URL: "https://api", Err: context.DeadlineExceeded}, "list as of 0"},
		"cut off":       {&url.Error{Op: "Get", URL: "https://api", Err: io.ErrUnexpectedEOF}, "list as of 0"},
		"429":           {apierrors.NewTooManyRequests("later", 1), "stream"},
		"too large":     {tooLarge, "stream"},
	} {
		t.Run(name, scene{
			opts:   streaming(),
			script: []answer{fails(c.failure)},
			takes:  time.Minute,
			asked:  lines("stream", c.next),
			told:   lines(fmt.Sprintf("watch failed: %v", c.failure)),
		}.play)
	}
}

// beginnings returns each way in which a source gets its first state, in which it reaches version 5, and then
// opens a watch, which sends events and ends. Of what is expected, the part before these events is there.
func beginnings(events ...watch.Event) map[string]scene {
	stream := append([]watch.Event{added("a", "1"), complete("5")}, events...)
	return map[string]scene{
		"after a list": {
			opts: aloneOptions(), script: []answer{lists("5", versioned("a", "1")), ends(events...)},
			asked: lines("list as of 0", "watch from 5"), received: lines(`list [a] at "5"`),
		},
		"after a stream": {
			opts: streaming(), script: []answer{ends(stream...)},
			asked: lines("stream"), received: lines(`list [a] at "5"`),
		},
		"after a restart": {
			opts: aloneOptions(), version: "5", script: []answer{lists("6"), ends(events...)},
			asked: lines("probe", "watch from 5"), received: lines("resumed 5"),
		},
	}
}

func TestABookmarkWithoutAVersionIsDroppedAlsoIfItClaimsToEndAStream(t *testing.T) {
	const unusable = "unusable: a bookmark without a resourceVersion"
	for name, s := range beginnings(bookmark(""), bookmark("0"), complete(""), complete("0"), modified("a", "7"), complete("")) {
		s.takes = 2 * time.Second
		s.asked, s.received = append(s.asked, "watch from 7"), append(s.received, `upsert a, at "7"`)
		s.told = lines(unusable, unusable, unusable, unusable, unusable)
		t.Run(name, s.play)
	}
}

func TestAnEventWithoutAVersionIsDeliveredAndTheNextWatchBeginsAtTheLastVersion(t *testing.T) {
	for _, none := range []string{"", "0"} {
		for name, s := range beginnings(modified("a", "7"), added("b", none), modified("a", none), deleted("b", none)) {
			s.script = append(s.script, ends(added("c", none)))
			s.takes = 5 * time.Second
			s.asked = append(s.asked, "watch from 7", "watch from 7")
			s.received = append(s.received, `upsert a, at "7"`, `upsert b, at ""`, `upsert a, at ""`, `delete b, at ""`, `upsert c, at ""`)
			t.Run(name+", "+none, s.play)
		}
	}
}
