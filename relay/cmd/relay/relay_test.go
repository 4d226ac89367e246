package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/metrics/legacyregistry"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// k8s.io/apiserver leaves the queues of a lookup of the certificate authority that has failed.
		goleak.IgnoreAnyFunction("k8s.io/client-go/util/workqueue.(*Typed[...]).updateUnfinishedWorkLoop"),
		goleak.IgnoreAnyFunction("k8s.io/client-go/util/workqueue.(*delayingType[...]).waitingLoop"),
		goleak.IgnoreAnyFunction("k8s.io/klog/v2.(*flushDaemon).run.func1")) // of the process
}

const kubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
current-context: c
users: [{name: u, user: {token: t}}]
`

// parse returns the options that a command line gives.
func parse(t *testing.T, args ...string) *options {
	t.Helper()
	o := newOptions()
	sections := o.sections("relay")
	flags := sections.FlagSet("all")
	for _, name := range sections.Order[:len(sections.Order)-1] {
		flags.AddFlagSet(sections.FlagSets[name])
	}
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	return o
}

func writeKubeconfig(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFlagsReachTheOptionsOfTheRelay(t *testing.T) {
	path := writeKubeconfig(t)
	o := parse(t, "--kubeconfig="+path, "--resources=pods,leases.coordination.k8s.io", "--allow-secrets", "--refuse-consistent-reads",
		"--max-staleness=7s", "--min-request-timeout=60", "--max-requests-inflight=9", "--secure-port=1234",
		"--authorization-webhook-cache-authorized-ttl=3s", "--authentication-kubeconfig=other")
	if err := o.complete(); err != nil {
		t.Fatal(err)
	}
	r := o.relay
	if !r.AllowSecrets || !r.RefuseConsistentReads || r.MaxStaleness != 7*time.Second || r.MinWatchTimeout != time.Minute ||
		r.MaxRequestsInFlight != 9 || r.Serving.BindPort != 1234 || r.Authorization.AllowCacheTTL != 3*time.Second {
		t.Errorf("got %+v", r)
	}
	if strings.Join(o.resources, " ") != "pods leases.coordination.k8s.io" || r.Upstream.Host != "https://127.0.0.1:1" {
		t.Errorf("got %v of %s", o.resources, r.Upstream.Host)
	}
	if r.Authentication.RemoteKubeConfigFile != "other" || r.Authorization.RemoteKubeConfigFile != path {
		t.Errorf("got kubeconfigs %s and %s", r.Authentication.RemoteKubeConfigFile, r.Authorization.RemoteKubeConfigFile)
	}
}

func TestACommandLineThatCannotBeUsedIsAnError(t *testing.T) {
	path := "--kubeconfig=" + writeKubeconfig(t)
	for want, args := range map[string][]string{
		"--resources is empty":         {path},
		"--min-request-timeout is 0":   {path, "--resources=pods", "--min-request-timeout=0"},
		"--max-staleness is 0":         {path, "--resources=pods", "--max-staleness=0"},
		"--max-requests-inflight is 0": {path, "--resources=pods", "--max-requests-inflight=0"},
		"no such file":                 {"--kubeconfig=/nonexistent", "--resources=pods"},
		"has pods twice":               {path, "--resources=pods,pods"},
		"Secrets are not served":       {path, "--resources=secrets"},
	} {
		if err := parse(t, args...).run(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: got %v, want %s", args, err, want)
		}
	}
}

// The API server is away at first. Then it knows only Leases, and then Widgets, too. They come to be served one
// after the other, each with a file.
func TestARelayThatStartsDuringAnOutageServesEachResourceWhenItIsThere(t *testing.T) {
	var phase atomic.Int32
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { answer(w, r, int(phase.Load())) }))
	defer api.Close()
	defer api.CloseClientConnections()
	dir := t.TempDir()
	path := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(kubeconfig, "https://127.0.0.1:1", api.URL)), 0o600); err != nil {
		t.Fatal(err)
	}
	o := parse(t, "--kubeconfig="+path, "--resources=leases.coordination.k8s.io,widgets.example.com", "--data-dir="+dir)
	var err error
	if o.relay.Serving.Listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- o.run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	const leases, widgets = "leases.v1.coordination.k8s.io", "widgets.v1.example.com"
	for i, want := range []map[string]string{
		{"leases.coordination.k8s.io": "currently unable", "widgets.example.com": "currently unable"},
		{leases: "", "widgets.example.com": "no matches for"},
		{leases: "", widgets: ""},
	} {
		phase.Store(int32(i))
		for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
			var absent map[string]error
			r := served().relay.Load()
			if r != nil {
				absent = r.Absent()
			}
			right := len(absent) == len(want)
			for name, reason := range want {
				err, known := absent[name]
				right = right && known && (err == nil) == (reason == "") && (err == nil || strings.Contains(err.Error(), reason))
			}
			if right && (r.Ready() == nil) == (i > 0) {
				break
			}
			if time.Since(begun) > time.Minute {
				t.Fatalf("phase %d: got %v, %v, want %v", i, absent, r.Ready(), want)
			}
		}
		for name, file := range map[string]bool{leases: i > 0, widgets: i > 1} {
			if _, err := os.Stat(filepath.Join(dir, name+".db")); (err == nil) != file {
				t.Errorf("phase %d: the file of %s: %v", i, name, err)
			}
		}
	}
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	series := 0
	for _, family := range families {
		if family.GetName() == "relay_absent" {
			series = len(family.GetMetric())
		}
	}
	if series != 2 {
		t.Errorf("relay_absent has %d series, want one for each resource", series)
	}
}

// answer is an API server that is away, knows Leases, or knows Widgets, too. Its objects never change.
func answer(w http.ResponseWriter, r *http.Request, phase int) {
	w.Header().Set("Content-Type", "application/json")
	send := func(code int, text string) {
		w.WriteHeader(code)
		_, _ = io.WriteString(w, text)
		w.(http.Flusher).Flush()
	}
	groups := `{"name":"coordination.k8s.io","versions":[{"groupVersion":"coordination.k8s.io/v1","version":"v1"}]}`
	if phase == 2 {
		groups += `,{"name":"example.com","versions":[{"groupVersion":"example.com/v1","version":"v1"}]}`
	}
	const resources = `{"kind":"APIResourceList","groupVersion":%q,"resources":[{"name":%q,"namespaced":true,"kind":%q,"verbs":["get","list","watch"]}]}`
	query := r.URL.Query()
	switch path := r.URL.Path; {
	case phase == 0:
		send(http.StatusServiceUnavailable, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":503,"message":"503"}`)
	case path == "/api":
		send(http.StatusOK, `{"kind":"APIVersions","versions":[]}`)
	case path == "/apis":
		send(http.StatusOK, `{"kind":"APIGroupList","apiVersion":"v1","groups":[`+groups+`]}`)
	case path == "/apis/coordination.k8s.io/v1":
		send(http.StatusOK, fmt.Sprintf(resources, "coordination.k8s.io/v1", "leases", "Lease"))
	case path == "/apis/example.com/v1" && phase == 2:
		send(http.StatusOK, fmt.Sprintf(resources, "example.com/v1", "widgets", "Widget"))
	case path == "/api/v1/namespaces/kube-system":
		send(http.StatusOK, `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"kube-system","uid":"u"}}`)
	case query.Get("sendInitialEvents") == "true":
		send(http.StatusUnprocessableEntity, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":422,"reason":"Invalid"}`)
	case query.Get("watch") != "":
		send(http.StatusOK, "")
		<-r.Context().Done()
	case strings.HasSuffix(path, "/leases"):
		send(http.StatusOK, `{"kind":"LeaseList","apiVersion":"coordination.k8s.io/v1","metadata":{"resourceVersion":"5"},"items":[]}`)
	case strings.HasSuffix(path, "/widgets") && phase == 2:
		send(http.StatusOK, `{"kind":"WidgetList","apiVersion":"example.com/v1","metadata":{"resourceVersion":"5"},"items":[]}`)
	default:
		send(http.StatusNotFound, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":404,"reason":"NotFound"}`)
	}
}

func TestTheHelpNamesTheFlagsAndTheVersionIsPrinted(t *testing.T) {
	for flag, want := range map[string][]string{
		"--help":    {"Relay flags:", "--resources", "--data-dir", "Secure serving flags:", "--tls-cert-file", "--client-ca-file", "--logging-format"},
		"--version": {"k8s.io/apiserver"},
	} {
		var out bytes.Buffer
		cmd := newCommand(context.Background())
		cmd.SetOut(&out)
		cmd.SetArgs([]string{flag})
		if err := cmd.Execute(); err != nil {
			t.Fatal(err)
		}
		for _, text := range want {
			if !strings.Contains(out.String(), text) {
				t.Errorf("%s: %s is missing in %s", flag, text, &out)
			}
		}
	}
}

func TestShardsAreSelectedByDefault(t *testing.T) {
	if !utilfeature.DefaultFeatureGate.Enabled(features.ShardedListAndWatch) {
		t.Error("the feature gate ShardedListAndWatch is off")
	}
}
