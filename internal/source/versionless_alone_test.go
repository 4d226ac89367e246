package source_test

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/customcacheinformer/informer/internal/source"
)

// beginning is a way in which a source gets its first state, in which it reaches version 5, and
// then opens a watch.
type beginning struct {
	opts          source.Options
	version       string // given to Run
	script        []answer
	asked, logged []string // before the events of the watch
}

// beginnings returns every beginning. The watch sends events, and ends.
func beginnings(events ...watch.Event) map[string]beginning {
	stream := append([]watch.Event{added("a", "1"), complete("5")}, events...)
	return map[string]beginning{
		"after a list": {
			aloneOptions(), "", []answer{lists("5", versioned("a", "1")), ends(events...)},
			lines("list as of 0", "watch from 5"), lines(`list [a] at "5"`),
		},
		"after a stream":  {streaming(), "", []answer{ends(stream...)}, lines("stream"), lines(`list [a] at "5"`)},
		"after a restart": {aloneOptions(), "5", []answer{lists("6"), ends(events...)}, lines("probe", "watch from 5"), lines("resumed 5")},
	}
}

func TestABookmarkWithoutAVersionIsDroppedAlsoIfItClaimsToEndAStream(t *testing.T) {
	const unusable = "unusable: a bookmark without a resourceVersion"
	for name, s := range beginnings(bookmark(""), bookmark("0"), complete(""), complete("0"), modified("a", "7"), complete("")) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := startAlone(t, s.opts, s.version, s.script...)
				p.after(2*time.Second, append(s.asked, "watch from 7"), append(s.logged, `upsert a, at "7"`),
					lines(unusable, unusable, unusable, unusable, unusable))
			})
		})
	}
}

func TestAnEventWithoutAVersionIsToldAndTheNextWatchBeginsAtTheLastVersion(t *testing.T) {
	for _, none := range []string{"", "0"} {
		for name, s := range beginnings(modified("a", "7"), added("b", none), modified("a", none), deleted("b", none)) {
			t.Run(name+", "+none, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p := startAlone(t, s.opts, s.version, append(s.script, ends(added("c", none)))...)
					p.after(5*time.Second, append(s.asked, "watch from 7", "watch from 7"),
						append(s.logged, `upsert a, at "7"`, `upsert b, at ""`, `upsert a, at ""`, `delete b, at ""`, `upsert c, at ""`), nil)
				})
			})
		}
	}
}

func TestAWatchAfterAListWithoutAVersionBeginsAtNoOlderOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const reported = "list failed: the list has no resourceVersion: the watch starts at some later state, and deletes in between are missed until the next list"
		p := startAlone(t, aloneOptions(), "", lists(""), ends(modified("a", "5")), fails(errExpired), lists(""), ends(deleted("a", "")))
		p.after(5*time.Second, lines("list as of 0", "watch from ", "watch from 5", "list as of 5", "watch from ", "watch from "),
			lines(`list [] at ""`, `upsert a, at "5"`, `list [] at ""`, `delete a, at ""`), lines(reported))
	})
	synctest.Test(t, func(t *testing.T) { // a fake that counts from 0
		p := startAlone(t, aloneOptions(), "", lists("0"), ends(added("a", "1")))
		p.after(5*time.Second, lines("list as of 0", "watch from 0", "watch from 0"), lines(`list [] at "0"`, `upsert a, at ""`), nil)
	})
}

func TestAStreamWithoutAVersionIsReportedLikeAList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startAlone(t, streaming(), "", sends(added("a", "1"), complete(""), deleted("a", "6")))
		p.expect(lines("stream"), lines(`list [a] at ""`, `delete a, at "6"`), lines("list failed: the list has no resourceVersion: "+
			"the watch starts at some later state, and deletes in between are missed until the next list"))
	})
}
