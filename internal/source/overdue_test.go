package source_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/testkit"
)

// deadWatches answers the first n watches with a stream that brings nothing and does not end: the proxy that holds it
// has lost its own connection.
func deadWatches(n int) func(*http.Request) testkit.Answer {
	return func(req *http.Request) testkit.Answer {
		if !testkit.IsWatch(req) || testkit.IsStream(req) || n == 0 {
			return nil
		}
		n--
		return testkit.Streams()
	}
}

func TestADeadWatchIsReplacedAfterElevenMinutesAtMost(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		w := newWire()
		w.Odd(deadWatches(3))
		o := observe(t, typedClient(w), anyOptions{Queue: queue})
		synctest.Wait()
		_, _ = w.Source.Create(object("new", "1"))
		_, _ = w.Source.Delete(keyOf("a"))
		sleepBubble(33*time.Minute + 3*time.Second) // a watch is opened a second after the last one
		told, deleted := o.take()
		if h := o.Health(); h.Objects != 3 || len(deleted) != 1 || len(told) != 0 {
			t.Errorf("%d objects, deleted %v, reported %q", h.Objects, deleted, told)
		}
		if got := asked(w.Source, 0); !strings.HasPrefix(got, "list, watch from 1003") || strings.Count(got, "list") > 1 || strings.Contains(got, "probe") {
			t.Errorf("the source was asked for: %s", got)
		}
	})
}

// A server may ignore that a watch is to end. Then the watch continues as long as events arrive.
func TestAWatchThatLastsTooLongContinuesWhileEventsArrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		long := open()
		p := startAlone(t, aloneOptions(), "", lists("5"), watches(long), sends())
		p.expect(lines("list as of 0", "watch from 5"), lines(`list [] at "5"`), nil)
		for range 60 {
			time.Sleep(59 * time.Second)
			long.send(bookmark("6"))
		}
		if asked, received, told := p.counts(); asked != 0 || received != 60 || told != 0 {
			t.Errorf("%d requests, %d calls of the sink, %d reports", asked, received, told)
		}
		p.forget()
		p.after(61*time.Second, lines("watch from 6"), nil, nil)
	})
}

func TestAWatchWithoutAnEndIsNeverOverdue(t *testing.T) {
	for name, seconds := range map[string]*int64{"nil": nil, "zero": new(int64), "negative": ptr.To[int64](-1), "the largest": ptr.To[int64](1<<63 - 1)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				opts := aloneOptions()
				opts.Tweak = func(o *metav1.ListOptions) { o.TimeoutSeconds = seconds }
				p := startAlone(t, opts, "", lists("5"), sends())
				p.expect(lines("list as of 0", "watch from 5"), lines(`list [] at "5"`), nil)
				p.after(24*time.Hour, nil, nil, nil)
			})
		})
	}
}

func TestAnOverdueWatchIsObserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &play{t: t, tellsAll: true, script: []answer{lists("5"), sends()}}
		opts := aloneOptions()
		opts.Tweak = func(o *metav1.ListOptions) { o.TimeoutSeconds = ptr.To[int64](60) }
		p.run(opts, "")
		p.after(2*time.Minute-time.Millisecond, lines("list as of 0", "watch from 5"), lines(`list [] at "5"`), lines("listed 0 objects in 0s: <nil>"))
		p.after(time.Second, lines("watch from 5"), nil, lines("watched 0 events in 2m0s, streaming false: the watch was silent, and the server has not ended it in time"))
	})
}
