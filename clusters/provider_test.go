package clusters_test

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/clusters"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
)

func TestClustersFollowTheirFiles(t *testing.T) {
	follow(t, func(t *testing.T, f *fleet) {
		f.write(t, "west.kubeconfig", kubeconfig("west", "token1"))
		f.write(t, "readme.md", []byte("no cluster"))
		f.next()
		f.expect(t, "engage west token1 B")
		f.write(t, "north.yml", kubeconfig("north", "token1"))
		f.next()
		f.expect(t, "engage north token1 C")
		f.write(t, "east.yaml", kubeconfig("east", "token2"))
		f.write(t, "north.yml", nil)
		f.write(t, "south.yml", kubeconfig("north", "token1"))
		f.next()
		f.expect(t, "disengage north", "engage south token1 C", "replace east token2 A")
		f.write(t, "east.yaml", kubeconfig("east", "token2")) // equal bytes
		f.write(t, "west.kubeconfig", nil)
		f.next()
		f.expect(t, "disengage west")
		if got := f.report(); got != "" {
			t.Errorf("the errors were %q", got)
		}
	})
}

func TestABadKubeconfigKeepsItsCluster(t *testing.T) {
	good := kubeconfig("east", "s3cret")
	for name, bad := range map[string][]byte{
		"empty":     {},
		"cut off":   good[:len(good)/2],
		"garbled":   []byte("s3cret: [s3cret"),
		"too large": bytes.Repeat([]byte("# s3cret\n"), clusters.MaxSize/9+1),
		"a program": kubeconfig("east", "", func(_ *cluster, u *user) { u.Exec = &clientcmdapi.ExecConfig{Command: "s3cret"} }),
		"no TLS":    kubeconfig("east", "s3cret", func(c *cluster, _ *user) { c.Server = "http://s3cret" }),
	} {
		t.Run(name, func(t *testing.T) {
			follow(t, func(t *testing.T, f *fleet) {
				f.write(t, "east.yaml", bad)
				f.write(t, "new.yaml", bad)
				f.next()
				f.expect(t)
				h := f.health()
				if len(h.Clusters) != 2 || !h.Clusters[0].Engaged || h.Clusters[1].Engaged || h.Clusters[0].Refused == "" || h.Clusters[1].Refused == "" || h.Ready() != nil {
					t.Errorf("Health is %+v", h)
				}
				if text := f.report() + string(must(json.Marshal(h))); strings.Contains(text, "s3cret") {
					t.Errorf("a value is shown: %s", text)
				}
				if f.next(); f.report() != "" {
					t.Error("the same errors are reported again")
				}
				f.write(t, "east.yaml", kubeconfig("east", "token1")) // as before
				f.write(t, "new.yaml", kubeconfig("new", "token1"))
				f.next()
				f.expect(t, "engage new token1 B")
				if h := f.health(); h.Clusters[0].Refused != "" || h.Clusters[1].Refused != "" {
					t.Errorf("Health is %+v", h)
				}
			})
		})
	}
}

// Whatever fails, the log names fields and no values.
func TestTheLogHasNoValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		f := &fleet{dir: t.TempDir()}
		f.write(t, "east.yaml", kubeconfig("s3cret", "s3cret", func(_ *cluster, u *user) { u.ImpersonateGroups = []string{"s3cret"} }))
		f.write(t, "west.yaml", kubeconfig("s3cret", "s3cret"))
		uid := func(_ context.Context, c *rest.Config) (types.UID, error) {
			return "", fmt.Errorf("get %s: s3cret", c.Host)
		}
		p := must(clusters.New(clusters.Directory{Path: f.dir}, clusters.Options{UID: uid}, &follower{}))
		ctx, stop := context.WithTimeout(klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log)))), 55*time.Second)
		defer stop()
		time.AfterFunc(25*time.Second, func() { f.write(t, "west.yaml", kubeconfig("s3cret2", "s3cret")) })
		err := p.Run(ctx)
		shown := string(must(json.Marshal(p.MemberHealth())))
		if got := log.String() + shown; err != nil || strings.Contains(got, "s3cret") || strings.Count(got, "as-groups") != 2 || strings.Count(got, "does not answer") != 2 {
			t.Errorf("log and Health are:\n%s", got)
		}
	})
}

func TestIdentityOfAClusterWhoseKubeconfigChanges(t *testing.T) {
	const same, other, kept = "replace east token2 A", "replace east token2 B", ""
	none := "no answer"
	for name, test := range map[string]struct {
		before, host, after, want string // the UID of kube-system before; then the host and the UID of kube-system
	}{
		"new credentials":                          {"1", "east", "1", same},
		"new credentials, the cluster is away":     {"1", "east", none, same},
		"new credentials, UIDs are forbidden":      {"", "east", "", same},
		"another cluster at the address":           {"1", "east", "2", other},
		"new address":                              {"1", "moved", "1", same},
		"new address of another cluster":           {"1", "moved", "2", other},
		"new address that does not answer":         {"1", "moved", none, kept},
		"new address, UIDs are forbidden":          {"", "moved", "", other},
		"new address, the UID is forbidden now":    {"1", "moved", "", other},
		"new address of a cluster that was away":   {none, "moved", "1", other},
		"new credentials for one that was away":    {none, "east", "1", same},
		"new address, and neither has answered":    {none, "moved", none, kept},
		"new credentials, and it has not answered": {none, "east", none, same},
		"another CA of the same cluster":           {"1", "east", "1", same},
		"another CA, UIDs are forbidden":           {"", "east", "", other},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t)
				f.write(t, "east.yaml", kubeconfig("east", "token1"))
				if test.before != none {
					f.answer("east", test.before)
				}
				informertest.Run(t, f.provider)
				f.expect(t, "engage east token1 A")
				f.mu.Lock()
				delete(f.systems, "east")
				f.mu.Unlock()
				if test.after != none {
					f.answer(test.host, test.after)
				}
				f.write(t, "east.yaml", kubeconfig(test.host, "token2", func(c *cluster, _ *user) {
					if strings.Contains(name, "another CA") {
						c.CertificateAuthorityData = cert
					}
				}))
				f.next()
				if test.want != kept {
					f.expect(t, test.want)
					return
				}
				f.expect(t)
				if h := f.health(); h.Clusters[0].Failed == "" || !strings.Contains(f.report(), "does not answer") {
					t.Errorf("Health does not show the address: %+v", h)
				}
				f.answer("moved", "1") // it does in the end
				f.next()
				f.expect(t, map[string]string{"1": same, none: other}[test.before])
			})
		})
	}
}

func TestALateUIDCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.write(t, "east.yaml", kubeconfig("east", "token1"))
		informertest.Run(t, f.provider)
		f.write(t, "east.yaml", kubeconfig("east", "token0"))
		time.Sleep(time.Hour) // with the last kubeconfig only
		synctest.Wait()
		if f.asked < 9 || f.asked > 12 {
			t.Errorf("a cluster that does not answer was asked %d times in an hour", f.asked)
		}
		f.answer("east", "1")
		time.Sleep(11 * time.Minute)
		f.answer("moved", "1")
		f.write(t, "east.yaml", kubeconfig("moved", "token2"))
		f.next()
		f.expect(t, "engage east token1 A", "replace east token0 A", "replace east token2 A")
		f.mu.Lock()
		delete(f.systems, "moved")
		f.mu.Unlock()
		f.write(t, "east.yaml", kubeconfig("moved", "token3"))
		f.next() // it is still known
		if got := f.health().Clusters[0].SystemUID; got != "1" {
			t.Errorf("SystemUID is %q", got)
		}
	})
}

func TestTheEndOfRunIsNotAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.answer("east", "1")
		f.write(t, "east.yaml", kubeconfig("east", "token1"))
		stop := informertest.Run(t, f.provider)
		f.write(t, "east.yaml", kubeconfig("moved", "token2"))
		time.Sleep(15 * time.Second)
		stop() // while the clusters are compared
		f.expect(t, "engage east token1 A")
		if h, errs := f.health(), f.report(); errs != "" || h.Clusters[0].Failed != "" {
			t.Errorf("the errors are %q, and Health is %+v", errs, h)
		}
	})
}

func TestClustersThatDoNotAnswerDelayNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, most, all atomic.Int32
		uid := func(ctx context.Context, _ *rest.Config) (types.UID, error) {
			all.Add(1)
			most.Store(max(most.Load(), now.Add(1)))
			defer now.Add(-1)
			<-ctx.Done()
			return "", ctx.Err()
		}
		f := &fleet{follower: &follower{}, dir: t.TempDir()}
		p := must(clusters.New(clusters.Directory{Path: f.dir}, clusters.Options{UID: uid}, f.follower))
		for n := range 30 {
			f.write(t, fmt.Sprintf("c%d.yaml", n), kubeconfig(fmt.Sprintf("c%d", n), "token"))
		}
		begin := time.Now()
		stop := informertest.Run(t, p)
		if took := time.Since(begin); took != 0 || len(f.calls) != 30 {
			t.Errorf("%d clusters were engaged after %v", len(f.calls), took)
		}
		time.Sleep(time.Minute)
		if most.Load() != 8 || all.Load() < 30 {
			t.Errorf("%d requests were made, %d at the same time", all.Load(), most.Load())
		}
		begin = time.Now()
		if stop(); time.Since(begin) != 0 {
			t.Error("Run waits for the requests")
		}
	})
}

func TestAFollowerThatFailsIsCalledAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := func(string) error { return errors.New("full") }
		failing := &follower{fail: full}
		f := newFleet(t, failing)
		f.answer("east", "1")
		f.answer("west", "2")
		f.write(t, "east.yaml", kubeconfig("east", "token1"))
		informertest.Run(t, f.provider) // it has synced
		f.expect(t, "engage east token1 A")
		failing.expect(t, "engage east token1 A")
		if h := f.health(); h.Clusters[0].Failed != "full" || h.Ready() != nil || !strings.HasSuffix(f.report(), "cluster east: full") {
			t.Errorf("Health is %+v", h)
		}
		f.next()
		f.expect(t)
		failing.expect(t, "engage east token1 A", "engage east token1 A")
		failing.fails(nil)
		f.next()
		failing.expect(t, "engage east token1 A")

		// It misses that east was another cluster for a while.
		failing.fails(full)
		f.write(t, "east.yaml", kubeconfig("west", "token2"))
		f.next()
		f.write(t, "east.yaml", kubeconfig("east", "token3"))
		f.next()
		failing.fails(nil)
		f.next()
		f.expect(t, "replace east token2 B", "replace east token3 C")
		failing.expect(t, "replace east token3 C")

		failing.fails(full)
		f.write(t, "east.yaml", nil)
		f.next()
		failing.fails(nil)
		f.next()
		f.expect(t, "disengage east")
		failing.expect(t, "disengage east")
		if h := f.health(); len(h.Clusters) != 0 {
			t.Errorf("Health is %+v", h)
		}
	})
}

// editor is a follower that changes its configuration.
type editor struct{ variables chan int }

func (e editor) Engage(_ string, config *rest.Config, _ types.UID) error {
	e.variables <- len(config.ExecProvider.Env) + len(config.Impersonate.Extra)
	config.ExecProvider.Env = append(config.ExecProvider.Env, clientcmdapi.ExecEnvVar{Name: "MINE", Value: "1"})
	config.Impersonate.Extra["mine"] = []string{"1"}
	return nil
}

func (e editor) Replace(name string, config *rest.Config, uid types.UID) error {
	return e.Engage(name, config, uid)
}

func (editor) Disengage(string) error { return nil }

func TestEachFollowerHasAConfigurationOfItsOwn(t *testing.T) {
	dir, variables := t.TempDir(), make(chan int, 2)
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "east.yaml"), kubeconfig("east", "", func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
		u.Exec = &clientcmdapi.ExecConfig{APIVersion: "client.authentication.k8s.io/v1", Command: "true", InteractiveMode: clientcmdapi.NeverExecInteractiveMode}
		u.Impersonate, u.ImpersonateUserExtra = "somebody", map[string][]string{"theirs": {"1"}}
	}), 0o600))
	uid := func(context.Context, *rest.Config) (types.UID, error) { return "1", nil }
	p := must(clusters.New(clusters.Directory{Path: dir}, clusters.Options{UID: uid, Allow: clusters.Allow{Exec: true, Impersonate: true}}, editor{variables}, editor{variables}))
	informertest.Run(t, p)
	for n := range 2 {
		if got := <-variables; got != 1 {
			t.Errorf("follower %d gets the changes of another one", n)
		}
	}
}

func TestAProviderIsAMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		var errs []error
		group := informer.Group{ErrorHandler: func(_ context.Context, err error) { errs = append(errs, err) }}
		f.provider = must(clusters.New(clusters.Directory{Path: f.dir}, clusters.Options{}, f.follower))
		f.write(t, "east.yaml", []byte("garbled"))
		if err := group.Add(f.provider); err != nil {
			t.Fatal(err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := f.provider.WaitForSync(ended); err == nil || !strings.Contains(err.Error(), "Run") || f.health().Ready() == nil || f.health().HasRun() {
			t.Errorf("before Run, WaitForSync returns %v, and Health is %+v", err, f.health())
		}
		stop := informertest.Run(t, &group)
		if h := f.health(); len(errs) != 1 || h.Ready() != nil || h.Live() != nil || !h.HasRun() || !f.provider.StopsFirst() || f.provider.Name() != "clusters" {
			t.Errorf("Health is %+v", h)
		}
		stop()
		if err := f.health().Ready(); !errors.Is(err, informer.ErrStopped) {
			t.Errorf("after the end, Ready returns %v", err)
		}
		if err := f.provider.Run(t.Context()); !errors.Is(err, informer.ErrAlreadyRun) {
			t.Errorf("the second Run returns %v", err)
		}
		if err := f.provider.WaitForSync(t.Context()); err != nil {
			t.Errorf("WaitForSync after the sync returns %v", err)
		}
	})
}

func TestNewChecksItsArguments(t *testing.T) {
	client, f, none := fake.NewClientset().CoreV1(), &follower{}, clusters.Options{}
	for name, err := range map[string]error{
		"no source":           errorOf(clusters.New(nil, none, f)),
		"no follower":         errorOf(clusters.New(clusters.Directory{Path: "x"}, none)),
		"a nil follower":      errorOf(clusters.New(clusters.Directory{Path: "x"}, none, f, (*follower)(nil))),
		"no path":             errorOf(clusters.New(clusters.Directory{}, none, f)),
		"a negative pause":    errorOf(clusters.New(clusters.Directory{Path: "x", Interval: -1}, none, f)),
		"no client":           errorOf(clusters.New(clusters.Secrets{Namespace: "x", Selector: "x"}, none, f)),
		"a nil client":        errorOf(clusters.New(clusters.Secrets{Client: (*corev1client.CoreV1Client)(nil), Namespace: "x", Selector: "x"}, none, f)),
		"no namespace":        errorOf(clusters.New(clusters.Secrets{Client: client, Selector: "x"}, none, f)),
		"no selector":         errorOf(clusters.New(clusters.Secrets{Client: client, Namespace: "x"}, none, f)),
		"a selector of space": errorOf(clusters.New(clusters.Secrets{Client: client, Namespace: "x", Selector: " "}, none, f)),
		"a wrong selector":    errorOf(clusters.New(clusters.Secrets{Client: client, Namespace: "x", Selector: "="}, none, f)),
	} {
		if err == nil {
			t.Errorf("%s is not an error", name)
		}
	}
}

func errorOf(_ *clusters.Provider, err error) error { return err }

func TestTheUIDIsThatOfKubeSystem(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/namespaces/kube-system" || r.Header.Get("Authorization") != "Bearer token" {
			http.Error(w, "another request", http.StatusTeapot)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"kube-system","uid":"uid-of-it"}}`))
	}))
	server.Config.SetKeepAlivesEnabled(false) // client-go keeps the connection otherwise
	server.StartTLS()
	defer server.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	host := strings.TrimPrefix(server.URL, "https://")
	config := must(clusters.Config(kubeconfig(host, "token", func(c *cluster, _ *user) { c.CertificateAuthorityData = ca }), clusters.Allow{}))
	if uid, err := clusters.SystemUID(t.Context(), config); uid != "uid-of-it" || err != nil {
		t.Errorf("the UID is %q, %v", uid, err)
	}
}
