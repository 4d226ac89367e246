package source_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/util/consistencydetector"

	"github.com/customcacheinformer/informer/internal/source"
)

// Tests of lists that the sink gets in parts.

// earlyPages returns the options of a source that lists in pages of two.
func earlyPages() source.Options {
	opts := aloneOptions()
	opts.Early, opts.PageSize = true, 2
	return opts
}

func earlyStream() source.Options {
	opts := streaming()
	opts.Early = true
	return opts
}

const begunAgain = "list failed: the list begins again, because the server no longer has its next page: too old"

func TestEachPageReachesTheSinkWhenItArrives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		second := page("5", "", versioned("c", "3"))
		arrives := make(chan struct{})
		second.hold = arrives
		p := startAlone(t, earlyPages(), "", page("5", "2", versioned("a", "1"), versioned("b", "2")), second, sends(modified("a", "6")))
		p.expect(lines("list the newest", "page 2"), lines("begin", `upsert a, at ""`, `upsert b, at ""`), nil)
		close(arrives)
		p.expect(lines("watch from 5"), lines(`upsert c, at ""`, `end at "5"`, `upsert a, at "6"`), nil)

		p = startAlone(t, earlyPages(), "", lists("5"))
		p.expect(lines("list the newest", "watch from 5"), lines("begin", `end at "5"`), nil)
	})
}

// A list that continues after its page has expired would be of two versions. client-go would ask for
// all objects at once. A source does so the second time; its next list comes in parts again.
func TestAListInPartsWhosePageHasExpiredBeginsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		expires := func() []answer {
			return []answer{page("5", "2", versioned("a", "1"), versioned("b", "2")), fails(errExpired)}
		}
		p := startAlone(t, earlyPages(), "", append(append(expires(), expires()...), lists("9", versioned("a", "1"), versioned("c", "8")), fails(errExpired), lists("11"))...)
		p.expect(lines("list the newest", "page 2"), lines("begin", `upsert a, at ""`, `upsert b, at ""`), lines(begunAgain))
		p.after(1500*time.Millisecond, lines("list the newest", "page 2"), lines("begin", `upsert a, at ""`, `upsert b, at ""`), nil)
		p.after(20*time.Second, lines("list the newest, whole", "watch from 9", "list the newest", "watch from 11"),
			lines(`list [a c] at "9"`, "begin", `end at "11"`), nil)
	})
}

func TestAPageWithAnObjectOfAnotherTypeFailsAsAWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startAlone(t, earlyPages(), "",
			page("5", "2", versioned("a", "1")), page("5", "", versioned("b", "2"), &corev1.Secret{}), lists("6", versioned("a", "1")))
		p.expect(lines("list the newest", "page 2"), lines("begin", `upsert a, at ""`), lines("list failed: no config map"))
		p.after(2*time.Second, lines("list the newest", "watch from 6"), lines("begin", `upsert a, at ""`, `end at "6"`), nil)
	})
}

func TestAStreamReachesTheSinkEventByEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(added("a", "1"), added("b", "2"))
		p := startAlone(t, earlyStream(), "", watches(w))
		p.expect(lines("stream"), lines("begin", `upsert a, at ""`, `upsert b, at ""`), nil)
		w.send(modified("a", "4"))
		w.send(deleted("b", "5"))
		w.send(bookmark("5")) // of the server's own: it does not end the first state
		w.send(complete("6"))
		w.send(added("c", "7"))
		p.expect(nil, lines(`upsert a, at ""`, `delete b, at ""`, `end at "6"`, `upsert c, at "7"`), nil)
	})
}

func TestAStreamWithAnObjectOfAnotherTypeIsReplacedByAList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startAlone(t, earlyStream(), "",
			sends(added("a", "1"), watch.Event{Type: watch.Added, Object: &corev1.Secret{}}, added("b", "2"), complete("5")),
			lists("6", versioned("a", "1")))
		p.expect(lines("stream", "list the newest", "watch from 6"),
			lines("begin", `upsert a, at ""`, "begin", `upsert a, at ""`, `end at "6"`), nil)
	})
}

func TestACutStreamIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startAlone(t, earlyStream(), "", ends(added("a", "1")), lists("5", versioned("b", "2")))
		p.expect(lines("stream", "list the newest", "watch from 5"),
			lines("begin", `upsert a, at ""`, "begin", `upsert b, at ""`, `end at "5"`),
			lines("watch failed: the stream of the first state ended before it was complete"))
	})
}

// The end of a list must never be taken for that of an earlier one, which was given up.
func TestAStreamWithoutObjectsAfterAListThatFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startAlone(t, earlyStream(), "", fails(errInternal), page("5", "2", versioned("a", "1")), fails(errInternal), sends(complete("6")))
		p.expect(lines("stream", "list as of 0", "page 2"), lines("begin", `upsert a, at ""`), lines("list failed: starting"))
		p.after(2*time.Second, lines("stream"), lines("begin", `end at "6"`), nil)
	})
}

func TestAListInPartsOfAServerThatWentBackIsDoubtfulFromTheBeginning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startAlone(t, earlyPages(), "", lists("50", versioned("a", "1")), ends(modified("a", "60")), fails(errExpired),
			page("40", "2", versioned("a", "30")), page("40", "", versioned("b", "31")))
		p.expect(lines("list the newest", "watch from 50"), lines("begin", `upsert a, at ""`, `end at "50"`, `upsert a, at "60"`), nil)
		p.after(2*time.Second, lines("watch from 60", "list the newest", "page 2", "watch from 40"),
			lines("begin, doubtful", `upsert a, at ""`, `upsert b, at ""`, `end at "40"`),
			lines(wentBack("60", "40")))
	})
}

// The version of a stream is known only at its end, when the sink has its objects.
func TestAStreamOfAServerThatWentBackIsReplacedByAList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startAlone(t, earlyStream(), "", ends(complete("50"), added("a", "51")), fails(errExpired),
			sends(added("a", "30"), complete("40")), lists("40", versioned("a", "30")))
		p.after(2*time.Second, lines("stream", "watch from 51", "stream", "list the newest", "watch from 40"),
			lines("begin", `end at "50"`, `upsert a, at "51"`, "begin", `upsert a, at ""`, "begin, doubtful", `upsert a, at ""`, `end at "40"`),
			lines(wentBack("51", "40")))
	})
}

// The version of a list still counts after the list was given up.
func TestAServerThatGoesBackDuringTheFirstListIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startAlone(t, earlyPages(), "", page("100", "2", versioned("a", "90")), fails(errInternal), lists("56", versioned("a", "50")))
		p.after(2*time.Second, lines("list the newest", "page 2", "list the newest", "watch from 56"),
			lines("begin", `upsert a, at ""`, "begin, doubtful", `upsert a, at ""`, `end at "56"`),
			lines("list failed: starting", wentBack("100", "56")))
	})
}

// A sink that waits for its store must not make the stream look silent.
func TestAStreamWhoseSinkIsSlowIsNotSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open()
		p := &play{t: t, script: []answer{watches(w)}}
		wait := func(during string, send func()) {
			release := p.blockSink()
			send()
			synctest.Wait()
			time.Sleep(time.Minute)
			release()
			p.mu.Lock()
			p.block = nil
			p.mu.Unlock()
			time.Sleep(quiet/4 - time.Second)
			if asked, _, _ := p.counts(); asked != 1 {
				t.Errorf("%s: %d requests", during, asked)
			}
		}
		wait("begin", func() { p.run(earlyStream(), "") })
		wait("added", func() { w.send(added("a", "1")) })
		wait("modified", func() { w.send(modified("a", "2")) })
		wait("deleted", func() { w.send(deleted("a", "3")) })
		w.send(complete("5"))
		p.expect(lines("stream"), lines("begin", `upsert a, at ""`, `upsert a, at ""`, `delete a, at ""`, `end at "5"`), nil)
	})
}

// quiet is how long a stream may stay silent.
const quiet = 10 * time.Second

// Run must not return while the sink has a part, because nothing else waits for the sink's calls of
// a Transform. These are not calls of the source.
func TestRunWaitsForASinkThatHasAPart(t *testing.T) {
	for name, tc := range map[string]struct {
		opts   source.Options
		answer answer
	}{
		"of pages":    {earlyPages(), page("5", "2", versioned("a", "1"))},
		"of a stream": {earlyStream(), sends(added("a", "1"))},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &play{t: t, script: []answer{tc.answer}}
				release := p.blockSink()
				p.run(tc.opts, "")
				returned := make(chan struct{})
				go func() { defer close(returned); p.stop() }()
				time.Sleep(time.Minute)
				select {
				case <-returned:
					t.Error("Run has returned")
				default:
				}
				if calls := p.source.UnderWay(); len(calls) > 0 {
					t.Errorf("calls are under way: %v", calls)
				}
				release()
				<-returned
			})
		})
	}
}

// This detector of client-go's compares the objects that the reflector has with those of a list.
func TestWithTheConsistencyDetectorNothingComesInParts(t *testing.T) {
	defer consistencydetector.SetDataConsistencyDetectionForWatchListEnabledForTest(true)()
	synctest.Test(t, func(t *testing.T) {
		p := startAlone(t, earlyStream(), "", sends(added("a", "1"), complete("5")), lists("5", versioned("a", "1")))
		p.expect(lines("stream", "list as of 5"), lines(`list [a] at "5"`), nil)
	})
}

// slowPage is a page that holds up the pager which asks for its continue token.
type slowPage struct {
	metav1.List
	release <-chan struct{}
}

func (s *slowPage) GetContinue() string {
	<-s.release
	return s.List.GetContinue()
}

// client-go's pager may continue with the list of a part after the next part has begun.
func TestThePagerOfAnEarlierPartAsksForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late, changed := make(chan struct{}), make(chan struct{})
		first := page("5", "2", versioned("a", "1"), versioned("b", "2"))
		first.list = &slowPage{*first.list.(*metav1.List), late}
		p := &play{t: t, script: []answer{first}}
		next := []source.Part{{Lister: p, Changed: changed}, {Lister: p}}
		opts := aloneOptions()
		opts.PageSize = 2
		p.runWith(opts, func(ctx context.Context) {
			p.source.RunParts(ctx, p, func() source.Part {
				part := next[0]
				next = next[1:]
				return part
			})
		})
		p.expect(lines("list the newest"), nil, nil)
		arrives := make(chan struct{})
		second := page("9", "", versioned("b", "2"))
		second.hold = arrives
		p.goOn(page("9", "4", versioned("a", "1")), second, sends())
		close(changed)
		p.expect(lines("list the newest", "page 4"), nil, nil)
		close(late)
		p.expect(nil, nil, nil)
		close(arrives)
		p.expect(lines("watch from 9"), lines(`list [a b] at "9"`), nil)
	})
}
