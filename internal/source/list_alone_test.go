package source_test

import (
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

var (
	errExpired   = apierrors.NewResourceExpired("too old")
	errInternal  = apierrors.NewServiceUnavailable("starting")
	errForbidden = apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "", errors.New("no"))
	errRefused   = &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("no route")}
)

func TestAListOfPagesReachesTheSinkAsOneList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts := aloneOptions()
		opts.PageSize = 2
		p := startAlone(t, opts, "",
			page("5", "2", versioned("a", "1"), versioned("b", "2")),
			page("5", "", versioned("c", "3")),
			sends(modified("a", "6")))
		p.expect(
			lines("list the newest", "page 2", "watch from 5"),
			lines(`list [a b c] at "5"`, `upsert a, at "6"`), nil)
	})
}

func TestAListWhoseLaterPageHasExpiredStartsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts := aloneOptions()
		opts.PageSize = 2
		p := startAlone(t, opts, "",
			page("5", "2", versioned("a", "1"), versioned("b", "2")),
			fails(errExpired),
			lists("9", versioned("a", "1"), versioned("c", "8")))
		p.expect(
			lines("list the newest", "page 2", "list the newest, whole", "watch from 9"),
			lines(`list [a c] at "9"`), nil)
	})
}

func TestAListWithAnObjectOfAnotherTypeFailsAsAWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startAlone(t, aloneOptions(), "", lists("5", versioned("a", "1"), &corev1.Secret{}), lists("6", versioned("a", "1")))
		p.expect(lines("list as of 0"), nil, lines("list failed: no config map"))
		p.after(5*time.Second, lines("list as of 0", "watch from 6"), lines(`list [a] at "6"`), nil)
	})
}

func TestAListWithoutAVersionIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startAlone(t, aloneOptions(), "",
			lists("", versioned("a", "1")), fails(errExpired),
			lists("", versioned("a", "1")),
			sends(added("b", "7"), added("a", "3"), modified("a", "8"), added("c", "9")))
		p.after(10*time.Second,
			lines("list as of 0", "watch from ", "list as of 0", "watch from "),
			lines(`list [a] at ""`, `list [a] at ""`,
				// A watch without a start version sends its first objects in no order.
				`upsert b, at ""`, `upsert a, at ""`, `upsert a, at "8"`, `upsert c, at "9"`),
			lines("list failed: the list has no resourceVersion: the watch starts at some later state, and deletes in between are missed until the next list"))
	})
}

func TestAListFromAVersionThatTheServerDoesNotTakeIsAskedForWithoutIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startAlone(t, aloneOptions(), "",
			lists("5"), ends(modified("a", "odd"), watch.Event{Type: watch.Error, Object: &errExpired.ErrStatus}),
			fails(apierrors.NewBadRequest("odd is no version")), lists("7", versioned("a", "6")))
		p.after(10*time.Second,
			lines("list as of 0", "watch from 5", "list as of odd", "list the newest", "watch from 7"),
			lines(`list [] at "5"`, `upsert a, at "odd"`, `list [a] at "7"`),
			lines(`list failed: a list from resourceVersion "odd": odd is no version`))
	})
}

func TestAnAnswerThatIsNoListOrNoWatchIsAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startAlone(t, aloneOptions(), "", answer{}, answer{list: versioned("a", "1")}, lists("5"), answer{})
		p.after(10*time.Second,
			lines("list as of 0", "list as of 0", "list as of 0", "watch from 5", "probe"),
			lines(`list [] at "5"`),
			lines("list failed: the source returned no list",
				"list failed: *v1.ConfigMap is no list: object does not implement the List interfaces",
				"watch failed: the source returned no watch"))
	})
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
