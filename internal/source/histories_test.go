package source_test

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
)

var (
	histories   = flag.Int("source-histories", 0, "how many histories of an odd source to play; 0 is 3000, and 150 with -short")
	historySeed = flag.Uint64("source-history", 0, "play only the history with this number")
)

// history is the life of one or several informers over a source that answers as it likes for a while.
type history struct {
	t       *testing.T
	wire    *testkit.Wire
	dynamic bool
	opts    anyOptions
	well    chan struct{} // closed when the source answers well, which ends all hanging requests
	deeds   *rand.Rand    // only for the test, so that it does the same whenever requests come

	mu    sync.Mutex // protects the rest
	rand  *rand.Rand // for the answers
	log   []string   // what happened
	known bool       // the informer has objects
}

func (h *history) draw(n int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.rand.IntN(n)
}

// note writes something into the log of the history.
func (h *history) note(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.log = append(h.log, time.Now().Format("04:05.000 ")+fmt.Sprintf(format, args...))
}

// answers returns the odd answer to a request, or nil for the right one.
func (h *history) answers(req *http.Request) testkit.Answer {
	name, answer := "", testkit.Answer(nil)
	switch n := h.draw(100); {
	case n < 4:
		name, answer = "no answer", h.hangs
	case n < 8:
		name, answer = "connection closed", testkit.Breaks(io.EOF)
	case n < 12:
		name, answer = "connection refused", testkit.Breaks(dialing(errDown))
	case n < 24:
		name, answer = oneOf(h, testkit.Refusals)
	case n < 45 && testkit.IsWatch(req):
		name, answer = oneOf(h, oddWatches)
	case n < 45:
		var body string
		name, body = oneOf(h, notTheList)
		h.mu.Lock()
		if h.known || !h.dynamic || !strings.Contains(name, "another kind") { // at first, nothing shows that this is odd
			answer = testkit.Says(200, body)
		}
		h.mu.Unlock()
	}
	h.note("%s: %s", req.URL.RawQuery, name)
	return answer
}

// hangs gives no answer until the source answers well.
func (h *history) hangs(req *http.Request) (*http.Response, error) {
	select {
	case <-req.Context().Done():
	case <-h.well:
	}
	return nil, io.ErrUnexpectedEOF
}

// oddWatches are odd answers to a watch or a stream.
var oddWatches = map[string]testkit.Answer{
	"a dead watch":          testkit.Streams(),
	"500 in the stream":     testkit.Streams(`{"type":"ERROR","object":` + testkit.StatusText(500, "InternalError") + `}`),
	"410 in the stream":     testkit.Streams(`{"type":"ERROR","object":` + testkit.StatusText(410, "Expired") + `}`),
	"an odd error":          testkit.Streams(`{"type":"ERROR","object":{"kind":"ConfigMap","apiVersion":"v1"}}`),
	"not an object":         testkit.Streams(`{"type":"ADDED","object":7}`),
	"an odd type":           testkit.Streams(`{"type":"ODD","object":` + oneObject + `}`),
	"a bookmark of nothing": testkit.Streams(`{"type":"BOOKMARK","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{}}}`),
	"an end without a version": testkit.Streams(`{"type":"BOOKMARK","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":` +
		`{"annotations":{"k8s.io/initial-events-end":"true"}}}}`),
	"an end at once": testkit.Says(200, ""),
}

func oneOf[V any](h *history, answers map[string]V) (string, V) {
	name := slices.Sorted(maps.Keys(answers))[h.draw(len(answers))]
	return name, answers[name]
}

// change changes something at the server.
func (h *history) change() {
	src, key, deed := h.wire.Source, "o"+strconv.Itoa(h.deeds.IntN(5)), h.deeds.IntN(12)
	switch {
	case deed < 5:
		src.Apply(object(key, strconv.FormatInt(time.Now().UnixNano(), 10)))
	case deed < 8:
		_, _ = src.Delete(keyOf(key))
	case deed < 9:
		src.Disconnect()
	case deed < 10:
		src.Expire()
	case deed < 11:
		src.Bookmark()
	}
	h.note("deed %d of %s, at version %s, %d objects", deed, key, src.ResourceVersion(), len(src.Objects()))
}

// check fails the test if the event is the delete of an object that exists.
func (h *history) check(_ context.Context, e informer.Event[informer.AnyObject]) error {
	h.note("delivered %s %s", e.Type, e.Key())
	if obj, err := h.wire.Source.Get(e.Key()); e.Type == informer.EventDeleted && err == nil && obj.UID == e.Old.GetUID() {
		h.t.Errorf("%s was deleted, and exists", e.Key())
	}
	return nil
}

// life runs one informer. Unless it is cut off, it must end in the state of the server.
func (h *history) life(cutOff bool) {
	client := typedClient
	if h.dynamic {
		client = dynamicClient
	}
	inf := must(informer.NewFrom(client(h.wire), h.opts))
	view := &informertest.Recorder[informer.AnyObject]{Hook: h.check}
	must(inf.AddWatcher(view, informer.WatcherOptions{}))
	ctx, cancel := context.WithCancel(h.t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = inf.Run(ctx) })
	defer running.Wait()
	defer cancel()
	h.well = make(chan struct{})
	h.wire.Odd(h.answers)
	for range 12 {
		sleepBubble(time.Duration(2+h.deeds.IntN(60)) * time.Second)
		h.mu.Lock()
		h.known = h.known || inf.Health().Objects > 0
		h.mu.Unlock()
		h.change()
	}
	h.wire.Odd(nil)
	close(h.well)
	if cutOff {
		return
	}
	h.note("the source is well")
	sleepBubble(15 * time.Minute)
	objs, stored, told := h.wire.Source.Objects(), maps.Collect(inf.All()), view.View()
	if !inf.HasSynced() || len(stored) != len(objs) || len(told) != len(objs) || view.Err() != nil {
		h.t.Errorf("ready: %v; of %d objects the store has %d, and the watcher knows %d: %v",
			inf.Health().Ready(), len(objs), len(stored), len(told), view.Err())
	}
	for _, obj := range objs {
		for _, known := range []informer.AnyObject{stored[keyOf(obj.Name)], told[keyOf(obj.Name)]} {
			if known == nil || known.GetResourceVersion() != obj.ResourceVersion {
				h.t.Errorf("%s is not known in version %s", obj.Name, obj.ResourceVersion)
			}
		}
	}
}

// playHistory plays the history with that number.
func playHistory(t *testing.T, seed uint64) {
	synctest.Test(t, func(t *testing.T) {
		h := &history{t: t, deeds: rand.New(rand.NewPCG(seed, 1)), rand: rand.New(rand.NewPCG(seed, 2)), wire: newWire()}
		h.dynamic = h.deeds.IntN(10) < 4
		h.opts = anyOptions{
			Name: "maps", PageSize: int64(h.deeds.IntN(3)), Decode: informer.DecodeMode(seed % 2),
			WatchList:    []informer.WatchListMode{informer.WatchListOn, informer.WatchListOff}[h.deeds.IntN(2)],
			Intake:       []informer.IntakeMode{informer.IntakeWhole, informer.IntakeEarly}[h.deeds.IntN(2)],
			Queue:        []informer.QueueKind{informer.QueueDeltaFIFO, informer.QueueRealFIFO}[h.deeds.IntN(2)],
			ErrorHandler: func(_ context.Context, err error) { h.note("reported: %v", err) },
		}
		if h.deeds.IntN(2) == 0 {
			h.life(false)
		} else {
			h.opts.Queue = informer.QueueRealFIFO
			store := informertest.NewDurable()
			for life := range 3 {
				h.opts.Durable = store
				h.life(life < 2 && h.deeds.IntN(2) == 0)
				store = store.Reopen()
			}
		}
		if t.Failed() {
			t.Logf("go test ./internal/source -run TestAnOddSource -source-history %d\n%+v\n%s", seed, h.opts, strings.Join(h.log, "\n"))
		}
	})
}

// TestAnOddSourceIsFollowedInTheEnd plays random histories: a source answers with a random choice of right and wrong
// answers, and not at all, and then well. Informers must end in the state of the server, and no object that
// exists may seem to be deleted. A history that fails is printed. Its number plays the same changes at the same times,
// and the same answers, but requests may come in another order and at other times.
func TestAnOddSourceIsFollowedInTheEnd(t *testing.T) {
	if *historySeed != 0 {
		playHistory(t, *historySeed)
		return
	}
	n := cmp.Or(*histories, 3000)
	if *histories == 0 && testing.Short() {
		n = 150
	}
	for seed := 1; seed <= n && !t.Failed(); seed++ {
		t.Run(strconv.Itoa(seed), func(t *testing.T) { playHistory(t, uint64(seed)) })
	}
}
