package clusters_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/tools/clientcmd/api/latest"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"

	"github.com/customcacheinformer/informer/clusters"
	"github.com/customcacheinformer/informer/informertest"
)

func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1] // see informertest.Main
	klog.SetLogger(klog.Logger{})
	goleak.VerifyTestMain(m)
}

var cert, key = func() ([]byte, []byte) {
	cert, key, err := certutil.GenerateSelfSignedCertKey("east.example.com", nil, nil)
	return must(cert, err), key
}()

// kubeconfig returns one for a host, with a token.
func kubeconfig(host, token string, edits ...func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo)) []byte {
	cluster, user := &clientcmdapi.Cluster{Server: "https://" + host}, &clientcmdapi.AuthInfo{Token: token}
	for _, edit := range edits {
		edit(cluster, user)
	}
	file := clientcmdapi.NewConfig()
	file.Clusters["c"], file.AuthInfos["u"] = cluster, user
	file.Contexts["x"], file.CurrentContext = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}, "x"
	return must(runtime.Encode(latest.Codec, file))
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// follower records its calls.
type follower struct {
	mu    sync.Mutex
	calls []string
	uids  []types.UID // a call names a UID by its place here
	fail  func(call string) error
}

func (f *follower) Engage(name string, config *rest.Config, uid types.UID) error {
	return f.record("engage "+name, config, uid)
}

func (f *follower) Replace(name string, config *rest.Config, uid types.UID) error {
	return f.record("replace "+name, config, uid)
}

func (f *follower) Disengage(name string) error { return f.record("disengage "+name, nil, "") }

func (f *follower) record(call string, config *rest.Config, uid types.UID) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if config != nil {
		n := slices.Index(f.uids, uid)
		if n < 0 {
			n, f.uids = len(f.uids), append(f.uids, uid)
		}
		call += fmt.Sprintf(" %s %c", config.BearerToken, 'A'+rune(n))
		config.BearerToken = "changed" // it is the follower's own
	}
	f.calls = append(f.calls, call)
	if f.fail != nil {
		return f.fail(call)
	}
	return nil
}

// fails makes the follower fail, or not, and forgets its calls.
func (f *follower) fails(fail func(call string) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls, f.fail = nil, fail
}

// expect fails the test unless these are the calls since the last expect. Their order does not count.
func (f *follower) expect(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	if slices.Sort(f.calls); !slices.Equal(f.calls, want) {
		t.Errorf("the calls were %q, want %q", f.calls, want)
	}
	f.calls = nil
}

// fleet is a directory that a provider follows, and the clusters whose kubeconfigs it has.
type fleet struct {
	*follower
	dir      string
	provider *clusters.Provider
	mu       sync.Mutex
	systems  map[string]string // the UID of kube-system by host; "" if it is forbidden, no entry if the cluster does not answer
	asked    int
	errs     []string
}

func newFleet(t *testing.T, more ...clusters.Follower) *fleet {
	f := &fleet{follower: &follower{}, dir: t.TempDir(), systems: map[string]string{}}
	f.provider = must(clusters.New(clusters.Directory{Path: f.dir}, clusters.Options{UID: f.uid, ErrorHandler: f.handle},
		append([]clusters.Follower{f.follower}, more...)...))
	return f
}

func (f *fleet) handle(_ context.Context, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.errs = append(f.errs, err.Error())
}

func (f *fleet) uid(ctx context.Context, config *rest.Config) (types.UID, error) {
	f.mu.Lock()
	f.asked++
	system, answers := f.systems[strings.TrimPrefix(config.Host, "https://")]
	f.mu.Unlock()
	switch {
	case !answers:
		<-ctx.Done()
		return "", fmt.Errorf("get %s: %w", config.Host, ctx.Err())
	case system == "":
		return "", apierrors.NewForbidden(schema.GroupResource{Resource: "namespaces"}, "kube-system", errors.New(config.Host))
	}
	return types.UID(system), nil
}

func (f *fleet) answer(host, system string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.systems[host] = system
}

// write writes a file, or removes it if content is nil.
func (f *fleet) write(t *testing.T, name string, content []byte) {
	t.Helper()
	err := os.WriteFile(filepath.Join(f.dir, name), content, 0o600)
	if content == nil {
		err = os.Remove(filepath.Join(f.dir, name))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// next waits for another reading of the directory, and for reads of UIDs that take their whole time.
func (f *fleet) next() {
	time.Sleep(25 * time.Second)
	synctest.Wait()
}

// report returns the errors since the last report.
func (f *fleet) report() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer func() { f.errs = nil }()
	return strings.Join(f.errs, "\n")
}

func (f *fleet) health() clusters.Health { return f.provider.MemberHealth().(clusters.Health) }

// follow runs test in a bubble, with a fleet that runs and has the cluster east.
func follow(t *testing.T, test func(t *testing.T, f *fleet)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.answer("east", "uid-east")
		f.write(t, "east.yaml", kubeconfig("east", "token1"))
		informertest.Run(t, f.provider)
		f.expect(t, "engage east token1 A")
		test(t, f)
	})
}
