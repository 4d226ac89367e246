package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/klog/v2"

	"github.com/customcacheinformer/informer/informertest"
)

func TestMain(m *testing.M) {
	klog.SetLogger(klog.Logger{})
	informertest.Main(m)
}

// pipes is a net.Listener in memory. Unlike a socket, it lets the time of a synctest bubble go on
// while a client waits for a connection.
type pipes struct {
	dialed chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipes() *pipes { return &pipes{dialed: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.dialed:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.closed) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.IPAddr{} }

func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.dialed <- theirs:
		return ours, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// world is an agent of the node "here" that runs, and the API server and the client that it has.
type world struct {
	*testing.T
	source   *informertest.Source[*corev1.Pod] // the API server
	listener *pipes
	client   *http.Client
	stop     context.CancelFunc // as SIGTERM does
	ended    chan error         // receives the result of run
}

// start starts an agent in a bubble. prepare, if not nil, is called first. The end of the test
// stops the agent.
func start(ctx context.Context, t *testing.T, prepare func(*informertest.Source[*corev1.Pod]), pods ...*corev1.Pod) *world {
	t.Helper()
	w := &world{T: t, source: informertest.NewSource(pods...), listener: newPipes(), ended: make(chan error, 1)}
	if prepare != nil {
		prepare(w.source)
	}
	fakes := fake.NewClientset()
	w.source.Serve(&fakes.Fake, "pods", &corev1.PodList{})
	transport := &http.Transport{DialContext: w.listener.dial}
	w.client = &http.Client{Transport: transport}
	ctx, w.stop = context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { w.ended <- run(ctx, fakes, "here", w.listener) })
	t.Cleanup(func() {
		w.stop()
		transport.CloseIdleConnections()
		running.Wait()
	})
	synctest.Wait()
	return w
}

func (w *world) get(path string) (status int, body string) {
	w.Helper()
	synctest.Wait() // the agent handles all changes so far
	request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://agent"+path, nil)
	if err != nil {
		w.Fatal(err)
	}
	response, err := w.client.Do(request)
	if err != nil {
		w.Fatal(err)
	}
	text, err := io.ReadAll(response.Body)
	if err = errors.Join(err, response.Body.Close()); err != nil {
		w.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// wants checks the status of an answer.
func (w *world) wants(path string, want int) {
	w.Helper()
	if got, body := w.get(path); got != want {
		w.Errorf("%s answers %d %s, want %d", path, got, body, want)
	}
}

// finds checks the name of the Pod that a lookup finds.
func (w *world) finds(ip, want string) {
	w.Helper()
	status, body := w.get("/pods/" + ip)
	var found answer
	if err := json.Unmarshal([]byte(body), &found); status != http.StatusOK || err != nil || found.Name != want {
		w.Errorf("%s is found as %d %s, want Pod %s", ip, status, body, want)
	}
}

func TestTheAgentIsNotReadyBeforeTheFirstList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t.Context(), t, func(s *informertest.Source[*corev1.Pod]) {
			s.Fail("list", errors.New("not yet"), -1)
		}, pod("web", "10.0.0.1"))
		w.wants("/livez", http.StatusOK)
		w.wants("/readyz", http.StatusServiceUnavailable)
		w.wants("/pods/10.0.0.1", http.StatusServiceUnavailable)
		w.wants("/pods/10.0.0.2", http.StatusServiceUnavailable) // not 404, which it cannot know
		w.source.Heal()
		time.Sleep(time.Minute)
		w.wants("/readyz", http.StatusOK)
		w.finds("10.0.0.1", "web")
	})
}

func TestTheAgentServesItsMetricsAndItsPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t.Context(), t, nil, pod("web", "10.0.0.1"))
		for path, want := range map[string]string{
			"/metrics":                     `informer_events_total{informer="Pod",origin="initial",type="added"} 1`,
			"/debug/informers?format=json": `"name": "Pod"`,
			"/debug/informers":             "<html",
		} {
			if status, body := w.get(path); status != http.StatusOK || !strings.Contains(body, want) {
				t.Errorf("%s answers %d, without %s:\n%s", path, status, want, body)
			}
		}
	})
}

// A client that reads slowly has a request under way when the agent is stopped.
func TestAStopWaitsForRequestsAndThenRefusesThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t.Context(), t, nil, pod("web", "10.0.0.1"))
		conn := w.ask("/pods/10.0.0.1")
		w.stop()
		time.Sleep(stopTimeout / 2)
		if len(w.ended) > 0 {
			t.Error("the agent has ended before it has answered")
		}
		if _, err := w.listener.dial(t.Context(), "", ""); err == nil {
			t.Error("the agent takes new connections while it stops")
		}
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		if response.StatusCode != http.StatusOK || err != nil || !strings.Contains(string(body), `"web"`) {
			t.Errorf("the answer is %s %s, %v", response.Status, body, err)
		}
		if err := errors.Join(response.Body.Close(), <-w.ended); err != nil {
			t.Error(err)
		}
	})
}

func TestAStopGivesUpAClientThatReadsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t.Context(), t, nil, pod("web", "10.0.0.1"))
		w.ask("/pods/10.0.0.1")
		stopped := time.Now()
		w.stop()
		if err := <-w.ended; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("run returns %v", err)
		}
		if took := time.Since(stopped); took > 2*stopTimeout {
			t.Errorf("the stop has taken %v", took)
		}
	})
}

// ask makes a request whose answer is not read yet.
func (w *world) ask(path string) net.Conn {
	w.Helper()
	conn, err := w.listener.dial(w.Context(), "", "")
	if err == nil {
		_, err = io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: agent\r\n\r\n")
	}
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = conn.Close() })
	synctest.Wait()
	return conn
}

// slowLog is a log that takes a second for each line about an address. It holds no lock in that
// second, so that other lines do not wait.
type slowLog struct{ lines chan string }

func (slowLog) Init(klog.RuntimeInfo)            {}
func (slowLog) Enabled(int) bool                 { return true }
func (slowLog) Error(error, string, ...any)      {}
func (l slowLog) WithValues(...any) klog.LogSink { return l }
func (l slowLog) WithName(string) klog.LogSink   { return l }
func (l slowLog) Info(_ int, line string, with ...any) {
	if strings.HasPrefix(line, "Address ") {
		time.Sleep(time.Second)
		l.lines <- fmt.Sprint(line, " ", with[1], " ", with[3])
	}
}

func TestAStopWritesTheWaitingLinesOfTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := slowLog{lines: make(chan string, 100)}
		w := start(klog.NewContext(t.Context(), klog.New(log)), t, nil, pod("a", "10.0.0.1"), pod("b", "10.0.0.2"))
		time.Sleep(time.Minute)
		w.source.Apply(ended(pod("a", "10.0.0.1")))
		w.source.Apply(pod("b", "10.0.0.2", "fd00::2"))
		w.source.Apply(pod("c", "10.0.0.1"))
		w.remove("c")
		synctest.Wait() // all is in the store, and the first line is being written
		w.stop()
		if err := <-w.ended; err != nil {
			t.Error(err)
		}
		close(log.lines)
		var lines []string
		for line := range log.lines {
			lines = append(lines, line)
		}
		slices.Sort(lines[:min(2, len(lines))]) // those of the first list come in any order
		if want := []string{
			"Address taken 10.0.0.1 default/a",
			"Address taken 10.0.0.2 default/b",
			"Address freed 10.0.0.1 default/a",
			"Address taken fd00::2 default/b",
			"Address taken 10.0.0.1 default/c",
			"Address freed 10.0.0.1 default/c",
		}; !slices.Equal(lines, want) {
			t.Errorf("the log is\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
		}
	})
}

func TestAnAgentThatCannotAcceptConnectionsEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t.Context(), t, nil)
		_ = w.listener.Close()
		if err := <-w.ended; !errors.Is(err, net.ErrClosed) {
			t.Errorf("run returns %v", err)
		}
	})
}

func TestAnAgentNeedsTheNameOfItsNode(t *testing.T) {
	listener := newPipes()
	if err := run(t.Context(), fake.NewClientset(), "", listener); err == nil || !strings.Contains(err.Error(), "NODE_NAME") {
		t.Errorf("run returns %v", err)
	}
	if _, err := listener.Accept(); err == nil {
		t.Error("the listener is open")
	}
}
