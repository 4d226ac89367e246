package relay_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/customcacheinformer/informer/e2e/internal/stage"
	"github.com/customcacheinformer/informer/relay"
)

// serves fails the test unless the relay still serves a list of all Leases.
func (w *world) serves(config *rest.Config, leases int) {
	w.Helper()
	list, err := leasesOf(w, config).List(w.Context(), metav1.ListOptions{ResourceVersion: "0"})
	w.OK(err)
	if len(list.Items) != leases {
		w.Errorf("the relay lists %d Leases, want %d", len(list.Items), leases)
	}
}

func TestTricksWithRequestsAreAnsweredAndOnlyReadsAreServed(t *testing.T) {
	w := newWorld(t)
	w.create(3)
	r := w.relay(w.front.Config(), "", nil)
	one := leasesPath + "/l0"
	for _, trick := range []struct {
		text string
		code int
	}{
		{rawRequest("GET", leasesPath), 200},
		{rawRequest("HEAD", leasesPath), 405},
		{rawRequest("POST", leasesPath), 405},
		{rawRequest("PUT", one), 405},
		{rawRequest("PATCH", one), 405},
		{rawRequest("DELETE", one), 405},
		{rawRequest("DELETE", leasesPath), 405},
		{rawRequest("OPTIONS", leasesPath), 405},
		{rawRequest("TRACE", leasesPath), 405},
		{rawRequest("BREW", leasesPath), 405},
		{rawRequest("CONNECT", "relay:443"), 404},
		// An override of the method is not a method.
		{rawRequest("GET", one, "X-HTTP-Method-Override: DELETE"), 200},

		{rawRequest("GET", leasesPath+"/../leases"), 404},
		{rawRequest("GET", leasesPath+"/.."), 400},
		{rawRequest("GET", leasesPath+"/%2e%2e"), 400},
		{rawRequest("GET", leasesPath+"/%2e%2e%2fsecrets"), 404},
		{rawRequest("GET", leasesPath+"/l0%00"), 404},
		{rawRequest("GET", "//apis//coordination.k8s.io/v1/leases"), 404},
		{rawRequest("GET", leasesPath+"/"), 200},
		{rawRequest("GET", "https://elsewhere"+leasesPath), 200},
		{rawRequest("GET", one+"?watch=true&timeoutSeconds=1"), 200},
		{rawRequest("GET", "/apis/coordination.k8s.io/v1/watch/namespaces/default/leases?timeoutSeconds=1"), 200},
		{rawRequest("GET", one+"/status"), 404},
		{rawRequest("GET", one+"/scale"), 404},
		{rawRequest("GET", "/api/v1/secrets"), 404},
		{rawRequest("GET", "/api/v1/namespaces/default/secrets/s"), 404},
		{rawRequest("GET", "/api/v1/nodes/n/proxy/secrets"), 404},
		{rawRequest("GET", "/debug/pprof/"), 404},
		{rawRequest("PUT", "/debug/flags/v"), 404},

		{rawRequest("GET", leasesPath, "Content-Length: 5") + "hello", 200},
		{strings.ReplaceAll(rawRequest("GET", leasesPath), "HTTP/1.1", "HTTP/1.0"), 200},
		{strings.ReplaceAll(rawRequest("GET", leasesPath), "Host: relay\r\n", ""), 400},
		{rawRequest("GET", leasesPath, "Content-Length: 5", "Content-Length: 6") + "hello", 400},
		{rawRequest("GET", leasesPath, "X-Large: "+strings.Repeat("x", 2<<20)), 431},
		{rawRequest("GET", leasesPath, "Accept: application/x-unknown"), 406},
		{rawRequest("GET", leasesPath, "Upgrade: websocket", "Connection: Upgrade"), 200},
		{"nothing of HTTP\r\n\r\n", 400},
	} {
		if a := w.send(r.config, trick.text); a.code != trick.code {
			line, _, _ := strings.Cut(trick.text, "\r\n")
			t.Errorf("%s: got %d, want %d: %.300s", line, a.code, trick.code, a.body)
		}
	}
	w.serves(r.config, 3)
}

func TestHugeAndUnknownSelectorsAreRefused(t *testing.T) {
	w := newWorld(t)
	w.create(4)
	r := w.relay(w.front.Config(), "", nil)
	for what, query := range map[string]struct {
		text   string
		code   int
		leases int
	}{
		"2 MB of labels":             {"labelSelector=half%20in%20(0" + strings.Repeat(",v", 1<<20) + ")", 431, 0},
		"1 MB of labels":             {"labelSelector=half%20in%20(0" + strings.Repeat(",v", 1<<19) + ")", 200, 2},
		"500 kB that are not labels": {"labelSelector=" + strings.Repeat("(", 500_000), 400, 0},
		"a field that is not served": {"fieldSelector=spec.holderIdentity%3Dme", 400, 0},
		"such a field in a watch":    {"watch=true&fieldSelector=spec.holderIdentity%3Dme", 400, 0},
		"a negative limit is none":   {"limit=-1", 200, 4},
		"an invalid continue token":  {"limit=1&continue=bm90aGluZw", 400, 0},
		"a version that is none":     {"resourceVersion=new", 400, 0},
		"one below 0":                {"resourceVersion=-1", 400, 0},
		"a watch from below 0":       {"watch=true&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&resourceVersion=-1", 400, 0},
		"a watch from a hexadecimal": {"watch=true&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&resourceVersion=0x1", 400, 0},
		"a watch from 2^64":          {"watch=true&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&resourceVersion=18446744073709551616", 400, 0},
		"a plain watch from below 0": {"watch=true&resourceVersion=-1", 400, 0},
	} {
		a := w.get(r.config, leasesPath+"?"+query.text)
		if got := strings.Count(a.body, `"uid"`); a.code != query.code || got != query.leases {
			t.Errorf("%s: got %d with %d Leases, want %d with %d: %.300s", what, a.code, got, query.code, query.leases, a.body)
		}
	}
	// client-go uses HTTP/2. There the client keeps to the limit that the server has sent, or the decoder of
	// the server ends the connection.
	client, err := rest.HTTPClientFor(r.config)
	w.OK(err)
	defer client.CloseIdleConnections()
	get := func(query string) (string, error) {
		a, err := client.Get(r.config.Host + leasesPath + query)
		if err != nil {
			return "", err
		}
		_, err = io.Copy(io.Discard, a.Body)
		w.OK(a.Body.Close())
		return a.Proto + " " + a.Status, err
	}
	const served = "HTTP/2.0 200 OK"
	if got, err := get(""); err != nil || got != served {
		t.Fatalf("got %s, %v, want %s", got, err, served)
	}
	_, err = get("?labelSelector=half%20in%20(0" + strings.Repeat(",v", 1<<20) + ")")
	if text := fmt.Sprint(err); !strings.HasSuffix(text, "request header list larger than peer's advertised limit") &&
		!strings.Contains(text, "server sent GOAWAY and closed the connection; LastStreamID=1, ErrCode=COMPRESSION_ERROR") {
		t.Errorf("2 MB of labels over HTTP/2: got %s", text[max(0, len(text)-300):])
	}
	if got, err := get(""); err != nil || got != served {
		t.Errorf("got %s, %v, want the client to be served again", got, err)
	}
	w.serves(r.config, 4)
}

// One client asks a relay that is behind for a version of the near future, and gets 410. The API server comes to that
// version. Then another client, which has it, must be asked to wait, and not to begin again with an older state.
func TestAQuestionOfOneReaderChangesNothingForOthers(t *testing.T) {
	w := newWorld(t)
	w.create(1)
	r := w.relay(w.front.Config(), "", nil)
	w.serves(r.config, 1)
	w.front.late.Lock()
	defer w.front.late.Unlock()
	if a := w.send(r.config, rawRequest("GET", fmt.Sprintf("%s/l0?resourceVersion=%d", leasesPath, w.mark()+1))); a.code != http.StatusGone {
		t.Errorf("a version of the future: got %d %.300s", a.code, a.body)
	}
	w.mark()
	version := w.mark()
	if a := w.get(r.config, leasesAt(version)); a.code != http.StatusTooManyRequests {
		t.Errorf("version %d, which the API server has: got %d %.300s", version, a.code, a.body)
	}
}

func TestAWatcherThatNeverReadsIsEndedAndOthersGetEverything(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute: make soak")
	}
	w := newWorld(t)
	w.create(1)
	r := w.relay(w.front.Config(), "", nil)
	other := w.agent(r.config, "other")
	ended := func() string {
		for line := range strings.Lines(w.metrics(r.config)) {
			if strings.HasPrefix(line, `apiserver_terminated_watchers_total{group="coordination.k8s.io",resource="leases"}`) {
				return line
			}
		}
		return ""
	}
	before := ended()        // of all relays of this process
	slow := w.open(r.config) //nolint:bodyclose // the end of the test closes the connection

	// More than the buffers of both sockets and of the watch hold.
	const changes, size = 150, 200_000
	for i := range changes {
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"change":"%d","text":"%s"}}}`, i, strings.Repeat("x", size))
		_, err := w.leases.Patch(t.Context(), "l0", types.MergePatchType, patch, metav1.PatchOptions{})
		w.OK(err)
	}
	w.Await("the other watcher misses a change", func() bool {
		lease, found, err := other.Get(types.NamespacedName{Namespace: "default", Name: "l0"})
		return err == nil && found && lease.Annotations["change"] == fmt.Sprint(changes-1)
	})
	w.Await("the watcher that does not read is not ended", func() bool { return ended() != before })
	// Its stream ends when it has read the events that were on their way.
	read, err := io.ReadAll(slow.Body)
	w.OK(err)
	if got := strings.Count(string(read), `"type":"MODIFIED"`); got == 0 || got >= changes {
		t.Errorf("the watcher that was ended got %d of %d changes", got, changes)
	}
	w.serves(r.config, 1)
}

// metrics returns the metrics of a server.
func (w *world) metrics(config *rest.Config) string {
	w.Helper()
	a := w.get(config, "/metrics")
	if a.code != http.StatusOK {
		w.Fatalf("the metrics are answered with %d", a.code)
	}
	return a.body
}

func TestThousandsOfConnectionsAreServed(t *testing.T) {
	connections := 2000
	if testing.Short() {
		connections = 200
	}
	w := newWorld(t)
	w.create(1)
	r := w.relay(w.front.Config(), "", nil)
	busy := 0
	for range connections {
		switch a := w.open(r.config); a.StatusCode { //nolint:bodyclose // as above
		case http.StatusOK:
		case http.StatusTooManyRequests:
			busy++
		default:
			t.Fatalf("a watch is answered with %s", a.Status)
		}
	}
	t.Logf("%d of %d watches were answered with 429", busy, connections)
	w.serves(r.config, 1)
	w.Await("the watches are not counted", func() bool {
		for line := range strings.Lines(w.metrics(r.config)) {
			if strings.HasPrefix(line, "apiserver_longrunning_requests{") && strings.Contains(line, `resource="leases"`) &&
				strings.HasSuffix(line, fmt.Sprintf("} %d\n", connections-busy)) {
				return true
			}
		}
		return false
	})
	if asked := w.front.asked(0); len(asked) != 1 {
		t.Errorf("the API server was asked for %v, want one stream", asked)
	}
}

func TestListsBeyondTheLimitGet429WhileWatchesGoOn(t *testing.T) {
	w := newWorld(t)
	w.create(1)
	r := w.relay(w.front.Config(), "", func(opts *relay.Options) { opts.MaxRequestsInFlight = 1 })
	client := leasesOf(t, r.config)
	now, err := client.List(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
	w.OK(err)
	// A list that asks for a version of the future takes three seconds.
	ctx, cancel := context.WithCancel(t.Context())
	held := make(chan struct{})
	go func() {
		defer close(held)
		for ctx.Err() == nil {
			_, _ = ask(ctx, r.config, rawRequest("GET", leasesPath+"?resourceVersion=1000000000"))
		}
	}()
	defer func() { cancel(); <-held }()
	w.Await("no list gets 429", func() bool {
		a := w.get(r.config, leasesPath)
		return a.code == http.StatusTooManyRequests && a.header.Get("Retry-After") != ""
	})
	watching, err := client.Watch(t.Context(), metav1.ListOptions{ResourceVersion: now.ResourceVersion})
	w.OK(err)
	defer watching.Stop()
	w.OK(w.leases.Delete(t.Context(), "l0", metav1.DeleteOptions{}))
	select {
	case e := <-watching.ResultChan():
		if e.Type != watch.Deleted {
			t.Errorf("got %s, want %s", e.Type, watch.Deleted)
		}
	case <-time.After(stage.Patience):
		t.Error("the watch got nothing")
	}
}
