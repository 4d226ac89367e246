package source_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
)

// waitsBehind returns how long an informer waits with its list, which takes no time, until another one gives it
// the only turn.
func waitsBehind(t *testing.T, lists *informer.ListLimit, first func()) time.Duration {
	t.Helper()
	first()
	synctest.Wait()
	begun := time.Now()
	second := newInformer(t, informertest.NewSource(object("z", "1")), options{Name: "second", Lists: lists})
	informertest.Run(t, second)
	return time.Since(begun)
}

// after gives an answer of w, or another one, after a time.
func after(w *testkit.Wire, d time.Duration, answer testkit.Answer) testkit.Answer {
	return func(req *http.Request) (*http.Response, error) {
		sleepUntil(req.Context(), d)
		if answer == nil {
			return (&testkit.Wire{Source: w.Source}).RoundTrip(req)
		}
		return answer(req)
	}
}

// eachAfter answers with lines, each after d, and stays open until the request ends.
func eachAfter(d time.Duration, lines ...string) testkit.Answer {
	return func(req *http.Request) (*http.Response, error) {
		in, out := io.Pipe()
		go func() {
			for _, line := range lines {
				sleepUntil(req.Context(), d)
				_, _ = io.WriteString(out, line+"\n")
			}
			<-req.Context().Done()
			_ = out.Close()
		}()
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: in}, nil
	}
}

func TestAListKeepsItsTurnWhileItMakesProgress(t *testing.T) {
	const s = time.Second
	added := `{"type":"ADDED","object":` + oneObject + `}`
	end := `{"type":"BOOKMARK","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"2000","annotations":{"k8s.io/initial-events-end":"true"}}}}`
	slow := func(d time.Duration, early informer.IntakeMode) anyOptions {
		return anyOptions{Intake: early, Transform: func(obj informer.AnyObject) (informer.AnyObject, error) {
			<-time.After(d) // of the bubble in which each case runs
			return obj, nil
		}}
	}
	slowStream := slow(3*s, informer.IntakeEarly)
	slowStream.WatchList = informer.WatchListOn
	always := func(answer testkit.Answer) func(*testkit.Wire) testkit.Answer {
		return func(*testkit.Wire) testkit.Answer { return answer }
	}
	for name, tc := range map[string]struct {
		answer func(*testkit.Wire) testkit.Answer // to the first informer; nil for the usual ones
		opts   anyOptions                         // of that
		want   time.Duration                      // after which the second lists
	}{
		"a list":                          {nil, anyOptions{}, 0},
		"a stream":                        {nil, anyOptions{WatchList: informer.WatchListOn}, 0},
		"a list that takes 4 s":           {func(w *testkit.Wire) testkit.Answer { return after(w, 4*s, nil) }, anyOptions{}, 4 * s},
		"a list that hangs":               {always(testkit.Hangs), anyOptions{}, 5 * s},
		"a stream that hangs":             {always(testkit.Hangs), anyOptions{WatchList: informer.WatchListOn}, 5 * s},
		"a silent stream":                 {always(testkit.Streams(added)), anyOptions{WatchList: informer.WatchListOn}, 5 * s},
		"a silent stream, taken in early": {always(testkit.Streams(added)), anyOptions{WatchList: informer.WatchListOn, Intake: informer.IntakeEarly}, 5 * s},
		"a forbidden list":                {always(testkit.Refuses(403, "Forbidden")), anyOptions{}, 0},
		"a forbidden stream":              {always(testkit.Refuses(403, "Forbidden")), anyOptions{WatchList: informer.WatchListOn}, 0},
		"a list of one page, at last": {func(w *testkit.Wire) testkit.Answer {
			return func(req *http.Request) (*http.Response, error) {
				if isLaterPage(req) {
					return testkit.Refuses(410, "Expired")(req) // then client-go asks for a whole list
				}
				return after(w, 0, nil)(req)
			}
		}, anyOptions{PageSize: 1}, 0},
		"a list that is not a list":        {always(testkit.Says(200, oneObject)), anyOptions{}, 0},
		"a list that fails after 3 s":      {func(w *testkit.Wire) testkit.Answer { return after(w, 3*s, testkit.Refuses(500, "InternalError")) }, anyOptions{}, 3 * s},
		"a stream that ends after 3 s":     {func(w *testkit.Wire) testkit.Answer { return after(w, 3*s, testkit.Says(200, added)) }, anyOptions{WatchList: informer.WatchListOn}, 3 * s},
		"a stream that cannot be opened":   {always(testkit.Breaks(syscall.ECONNREFUSED)), anyOptions{WatchList: informer.WatchListOn}, 0},
		"a stream that ends with 429":      {always(testkit.Streams(`{"type":"ERROR","object":` + testkit.StatusText(429, "TooManyRequests") + `}`)), anyOptions{WatchList: informer.WatchListOn}, 0},
		"a stream, an event each 4 s":      {always(eachAfter(4*s, added, end)), anyOptions{WatchList: informer.WatchListOn}, 8 * s},
		"pages for client-go, after 3 s":   {func(w *testkit.Wire) testkit.Answer { return after(w, 3*s, nil) }, anyOptions{PageSize: 1, Decode: informer.DecodeByClient}, 9 * s},
		"pages, each after 3 s":            {func(w *testkit.Wire) testkit.Answer { return after(w, 3*s, nil) }, anyOptions{PageSize: 1}, 9 * s},
		"early pages, each after 3 s":      {func(w *testkit.Wire) testkit.Answer { return after(w, 3*s, nil) }, anyOptions{PageSize: 1, Intake: informer.IntakeEarly}, 9 * s},
		"a slow transform":                 {nil, slow(3*s, informer.IntakeEarly), 9 * s},
		"a slow transform of a whole list": {nil, slow(3*s, informer.IntakeWhole), 9 * s},
		"a slow transform of a stream":     {nil, slowStream, 9 * s},
		"a transform that hangs":           {nil, slow(time.Minute, informer.IntakeEarly), 5 * s},
		"one of a whole list":              {nil, slow(time.Minute, informer.IntakeWhole), 5 * s},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, opts := newWire(), tc.opts
				opts.Lists = informer.NewListLimit(1)
				if tc.answer != nil {
					is := func(req *http.Request) bool { return testkit.IsStream(req) == (opts.WatchList == informer.WatchListOn) }
					w.Odd(odd(is, tc.answer(w)))
				}
				if got := waitsBehind(t, opts.Lists, func() { observe(t, typedClient(w), opts) }); got != tc.want {
					t.Errorf("the next informer lists after %v, want %v", got, tc.want)
				}
			})
		})
	}
}

// A relist takes a turn, too, and gives it back.
func TestARelistNeedsATurn(t *testing.T) {
	bothWays(t, func(t *testing.T, opts options, _ string) {
		src := informertest.NewSource(object("a", "1"))
		opts.Lists, opts.ErrorHandler = informer.NewListLimit(1), ignore
		inf := newInformer(t, src, opts)
		informertest.Run(t, inf)
		opened(t, src)
		w := newWire()
		w.Odd(toLists(testkit.Hangs))
		observe(t, typedClient(w), anyOptions{Lists: opts.Lists})
		synctest.Wait()
		begun := time.Now()
		src.Expire()
		opened(t, src)
		if waited := time.Since(begun); waited < 5*time.Second || waited > 8*time.Second { // with a pause
			t.Errorf("it lists again after %v", waited)
		}
		if got := waitsBehind(t, opts.Lists, func() {}); got != 0 {
			t.Errorf("the next informer lists after %v", got)
		}
	})
}

// pipes is a listener and the dialer of its connections, which stay inside a bubble.
type pipes struct {
	conns chan net.Conn
	ended context.Context
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.ended.Done():
		return nil, net.ErrClosed
	}
}

func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return &net.UnixAddr{} }

func (p pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.conns <- server:
		return client, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Only with the Transport can an informer see the rest of the body of an answer.
func TestABodyThatCannotBeSeenKeepsTheTurnForAMinute(t *testing.T) {
	item := func(n int) string {
		return fmt.Sprintf(`{"metadata":{"namespace":"default","name":"o%d","uid":"%d"}}`, n, n)
	}
	for name, tc := range map[string]struct {
		wrap        bool
		items       int // one each 4 s; 0 for 429
		end         bool
		first, want time.Duration // until the answer begins, and until the next informer lists
		mode        informer.WatchListMode
	}{
		"seen, and ends":        {true, 10, true, 0, 40 * time.Second, 0},
		"unseen, and ends":      {false, 10, true, 0, 40 * time.Second, 0},
		"seen, and hangs":       {true, 3, false, 0, 13 * time.Second, 0}, // the last item came at 8 s
		"unseen, hangs":         {false, 3, false, 0, time.Minute, 0},
		"begins too late":       {false, 3, true, 6 * time.Second, 5 * time.Second, 0},
		"429, again after 50 s": {false, 0, true, 0, time.Minute, 0},
		"a silent stream":       {false, 0, true, 0, 5 * time.Second, informer.WatchListOn},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				p := pipes{make(chan net.Conn), ctx}
				server := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
					if testkit.IsWatch(req) {
						w.(http.Flusher).Flush()
						<-req.Context().Done()
						return
					}
					if tc.items == 0 {
						w.Header().Set("Retry-After", "50")
						w.WriteHeader(http.StatusTooManyRequests)
						return
					}
					sleepUntil(req.Context(), tc.first)
					w.Header().Set("Content-Type", "application/json")
					_, _ = fmt.Fprint(w, `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[`)
					for n := range tc.items {
						_, _ = fmt.Fprint(w, strings.Repeat(",", min(n, 1))+item(n))
						w.(http.Flusher).Flush()
						sleepUntil(req.Context(), 4*time.Second)
					}
					if !tc.end {
						<-req.Context().Done()
					}
					_, _ = fmt.Fprint(w, `]}`)
				})}
				go func() { _ = server.Serve(p) }()
				transport := &http.Transport{DialContext: p.dial}
				t.Cleanup(func() { transport.CloseIdleConnections(); cancel(); _ = server.Close() }) // after the informers
				config := &rest.Config{Host: "http://api", Transport: transport, QPS: -1}
				config.ContentType = "application/json"
				if tc.wrap {
					config.Wrap(informer.Transport)
				}
				lists := informer.NewListLimit(1)
				if got := waitsBehind(t, lists, func() {
					client := kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps("")
					observe(t, informer.ListWatch(client), anyOptions{Lists: lists, WatchList: tc.mode})
				}); got != tc.want {
					t.Errorf("the next informer lists after %v, want %v", got, tc.want)
				}
			})
		})
	}
}

// An informer that waits for another one inside its Transform does not keep it from listing.
func TestInformersThatWaitForEachOtherGoOn(t *testing.T) {
	for name, intake := range map[string]informer.IntakeMode{"early": informer.IntakeEarly, "whole": informer.IntakeWhole} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lists, begun := informer.NewListLimit(1), time.Now()
				second := newInformer(t, informertest.NewSource(object("b", "1")), options{Name: "second", Lists: lists})
				first := newInformer(t, informertest.NewSource(object("a", "1")), options{Lists: lists, Intake: intake, Transform: func(obj configMap) (configMap, error) {
					return obj, second.WaitForSync(t.Context())
				}})
				start(t, first)
				synctest.Wait()
				start(t, second)
				if err := first.WaitForSync(within(t, time.Minute)); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(begun); took != 5*time.Second {
					t.Errorf("they have synced after %v", took)
				}
			})
		})
	}
}

func TestAWaitForATurnIsShownAndEndsWithTheInformer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, lists := newWire(), informer.NewListLimit(1)
		w.Odd(toLists(testkit.Hangs))
		observe(t, typedClient(w), anyOptions{Lists: lists})
		synctest.Wait()
		inf := newInformer(t, informertest.NewSource(object("a", "1")), options{Name: "waiter", Lists: lists})
		stop := start(t, inf)
		synctest.Wait()
		const want = "waits for its turn to list"
		h := inf.Health()
		encoded, err := json.Marshal(h)
		if err != nil || !strings.Contains(string(encoded), `"waitsForTurn":true`) || !h.WaitsForTurn || !strings.Contains(h.Ready().Error(), want) {
			t.Errorf("Health: %s, %v, %v", encoded, err, h.Ready())
		}
		if err := inf.WaitForSync(within(t, 0)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("WaitForSync: %v", err)
		}
		both := must(informer.NewInNamespaces(informertest.NewSource[configMap]().Namespace, []string{"one", "two"}, anyOptions{Lists: lists}))
		runUntilTheEnd(t, func(ctx context.Context) { _ = both.Run(ctx) })
		synctest.Wait()
		if h := both.Health(); !h.WaitsForTurn || !h.Namespaces[1].WaitsForTurn || !strings.Contains(h.Ready().Error(), want+" of one, of two") {
			t.Errorf("of two namespaces: %v, %+v", h.Ready(), h)
		}
		begun := time.Now()
		stop()
		if took := time.Since(begun); took != 0 || inf.Health().WaitsForTurn {
			t.Errorf("the stop has taken %v, %+v", took, inf.Health())
		}
		if got := waitsBehind(t, lists, func() {}); got != 5*time.Second || both.Health().WaitsForTurn {
			t.Errorf("the next informer lists after %v, %+v", got, both.Health())
		}
	})
}

func TestAStartWithoutAListNeedsNoTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src, store := informertest.NewSource(object("a", "1")), informertest.NewDurable()
		oneRun(t, src, store, options{})
		w, lists := newWire(), informer.NewListLimit(1)
		w.Odd(toLists(testkit.Hangs))
		observe(t, typedClient(w), anyOptions{Lists: lists})
		synctest.Wait()
		for name, lw := range map[string]cache.ListerWatcher{
			"a warm start":  src,
			"a fake client": informer.ListWatch(fake.NewClientset(object("a", "1")).CoreV1().ConfigMaps("")),
		} {
			opts := options{Name: name, Lists: lists}
			if lw == cache.ListerWatcher(src) {
				opts.Durable = store.Reopen()
			}
			inf, begun := newInformer(t, lw, opts), time.Now()
			informertest.Run(t, inf)
			if took := time.Since(begun); took > time.Second {
				t.Errorf("%s takes %v", name, took)
			}
		}
	})
}
