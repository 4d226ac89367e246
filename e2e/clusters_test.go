package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/dynamic"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/clusters"
	"github.com/customcacheinformer/informer/e2e/apiserver"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/share"
)

// moment is a state of an object, and when it was written or delivered.
type moment struct {
	state string // the UID with the version, or "deleted" with the UID
	at    time.Time
	phase string // of the test, when it was written
}

// member is a cluster: the objects in one namespace of a server, with one writer.
type member struct {
	*world
	random *rand.Rand
	there  map[int]types.UID
	wrote  map[string][]moment // by the name of the object
	last   atomic.Value        // the version of the last write
	phase  string
	may    func(error) bool // which errors a write may have; nil for none
}

// member creates some objects if there are none.
func (w *world) member(s *apiserver.Server, namespace string) *member {
	w.t.Helper()
	in := w.client(s.Config()).Namespace(namespace)
	m := &member{
		world: &world{t: w.t, gvk: w.gvk, gvr: w.gvr, writers: []dynamic.ResourceInterface{in}}, random: rand.New(rand.NewPCG(0, 67)),
		there: map[int]types.UID{}, wrote: map[string][]moment{},
	}
	for n := range 10 {
		obj, err := in.Create(w.t.Context(), w.widget(name(n), n), metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			obj, err = in.Get(w.t.Context(), name(n), metav1.GetOptions{})
		}
		m.do(err)
		m.there[n], m.wrote[name(n)] = obj.GetUID(), []moment{{state: version(obj)}}
	}
	return m
}

// write creates, changes or deletes an object.
func (m *member) write() {
	m.writeTo(m.random.IntN(30))
}

// writeTo creates an object that is not there, and changes or deletes another one.
func (m *member) writeTo(n int) {
	in, ctx, size := m.writers[0], m.t.Context(), int(time.Now().UnixNano())
	state := fmt.Sprint("deleted ", m.there[n])
	var obj object
	var err error
	switch {
	case m.there[n] == "":
		obj, err = in.Create(ctx, m.widget(name(n), size), metav1.CreateOptions{})
	case m.random.IntN(4) == 0:
		err = in.Delete(ctx, name(n), metav1.DeleteOptions{})
	default:
		obj, err = in.Patch(ctx, name(n), types.MergePatchType, fmt.Appendf(nil, `{"spec":{"size":%d}}`, size), metav1.PatchOptions{})
	}
	at := time.Now()
	if err != nil && m.may != nil && m.may(err) {
		return
	}
	if m.do(err); err != nil {
		return
	}
	m.there[n] = ""
	if obj != nil {
		m.there[n], state = obj.GetUID(), version(obj)
		m.last.Store(obj.GetResourceVersion())
	}
	m.wrote[name(n)] = append(m.wrote[name(n)], moment{state, at, m.phase})
}

func (m *member) writes(n int) {
	for pace := time.Tick(2 * time.Millisecond); n > 0; n-- {
		m.write()
		<-pace
	}
}

// writing writes until the returned function is called.
func (m *member) writing() (halt func()) {
	var all sync.WaitGroup
	var over atomic.Bool
	all.Go(func() {
		for !over.Load() {
			m.writes(1)
		}
	})
	halt = func() { over.Store(true); all.Wait() }
	m.t.Cleanup(halt)
	return halt
}

// fleet is an informer over clusters, and the events of its watcher.
type fleet struct {
	*informer.Clusters[object]
	t     *testing.T
	lists atomic.Int64 // requests for a first state, through source
	token atomic.Value // of the last request

	mu   sync.Mutex                                 // protects the rest
	told map[string]map[string][]moment             // by cluster and name
	view map[string]map[types.NamespacedName]string // what the events add up to, by cluster
	last informer.Origin
}

func newFleet(t *testing.T, failed func(error)) *fleet {
	f := &fleet{t: t, told: map[string]map[string][]moment{}, view: map[string]map[types.NamespacedName]string{}}
	var err error
	f.Clusters, err = informer.NewOverClusters(informer.Options[object]{
		ErrorHandler: func(_ context.Context, err error) { failed(err) }, Share: share.New(),
		Backoff: &wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Steps: 5, Cap: time.Second},
	}, informer.ClusterOptions{})
	if err == nil {
		_, err = f.AddWatcher(informer.WatcherFunc[object](f.tell), informer.WatcherOptions{MaxBacklog: -1})
	}
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fleet) tell(_ context.Context, e informer.Event[object]) error {
	at, key := time.Now(), e.Key()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.told[e.Cluster()] == nil {
		f.told[e.Cluster()], f.view[e.Cluster()] = map[string][]moment{}, map[types.NamespacedName]string{}
	}
	told, view, before, state := f.told[e.Cluster()], f.view[e.Cluster()], "", fmt.Sprint("deleted ", e.Object().GetUID())
	if e.Old != nil {
		before = version(e.Old)
	}
	if before != view[key] && !e.FinalStateUnknown && e.Type != informer.EventDeleted {
		f.t.Errorf("%s: %v has the Old %q after %q", e.Cluster(), e, before, view[key])
	}
	if delete(view, key); e.New != nil {
		state = version(e.New)
		view[key] = state
	}
	told[key.Name], f.last = append(told[key.Name], moment{state: state, at: at}), e.Origin
	return nil
}

// source returns the source of a member for a user, and counts its lists.
func (f *fleet) source(m *member, config *rest.Config, namespace string) informer.ClusterSource {
	config = rest.CopyConfig(config)
	config.Wrap(func(rt http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			f.token.Store(config.BearerToken)
			if what := kindOfRequest(req.URL.Query()); what == "list" || what == "stream" {
				f.lists.Add(1)
			}
			return rt.RoundTrip(req)
		})
	})
	return informer.ClusterSource{Source: informer.ListWatch(m.client(config).Namespace(namespace)), UID: "uid"}
}

func (f *fleet) health(cluster string) informer.SourceHealth {
	all := f.Health().Clusters
	return all[slices.IndexFunc(all, func(h informer.SourceHealth) bool { return h.Cluster == cluster })]
}

func (f *fleet) eventually(what string, done func() bool) {
	f.t.Helper()
	for deadline := time.Now().Add(patience); !done(); <-time.After(5 * time.Millisecond) { // the servers run in real time
		if time.Now().After(deadline) {
			f.t.Fatalf("%s; Health: %+v", what, f.Health().Clusters)
		}
	}
}

// settles waits until the store and the watcher have the state of a server.
func (f *fleet) settles(cluster string, m *member) {
	f.t.Helper()
	want := m.state()
	f.eventually(cluster+" does not get the state of its server", func() bool {
		stored := map[types.NamespacedName]string{}
		for key, obj := range f.In(cluster).All() {
			stored[key] = version(obj)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		return cmp.Equal(want, stored) && cmp.Equal(want, f.view[cluster])
	})
}

// reads waits until the store has the next write.
func (f *fleet) reads(cluster string, m *member) {
	f.t.Helper()
	before := m.last.Load()
	f.eventually("no writes", func() bool { return m.last.Load() != before })
	if err := f.WaitForVersionIn(f.t.Context(), cluster, m.last.Load().(string)); err != nil {
		f.t.Fatal(err)
	}
}

// events returns how many events of a cluster there were.
func (f *fleet) events(cluster string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, all := range f.told[cluster] {
		n += len(all)
	}
	return n
}

// complete fails the test unless each state of each object was delivered, once and in order. It returns how long the events
// took after the server's answer to the writer, by phase.
func (f *fleet) complete(cluster string, m *member) map[string][]time.Duration {
	f.t.Helper()
	f.settles(cluster, m)
	f.mu.Lock()
	defer f.mu.Unlock()
	took := map[string][]time.Duration{}
	if diff := cmp.Diff(m.wrote, f.told[cluster], cmp.Comparer(func(a, b moment) bool { return a.state == b.state })); diff != "" {
		f.t.Errorf("%s (-written +delivered):\n%s", cluster, diff)
		return took
	}
	for name, wrote := range m.wrote {
		for n, w := range wrote {
			took[w.phase] = append(took[w.phase], max(0, f.told[cluster][name][n].at.Sub(w.at))) // the event may come before the answer
		}
	}
	return took
}

// copies returns two servers that began with the same etcd, with objects in a namespace.
func copies(w *world, namespace string) (servers [2]*apiserver.Server) {
	w.t.Helper()
	dirs := [2]string{w.t.TempDir(), w.t.TempDir()}
	start := func(dir string) *apiserver.Server {
		s, err := apiserver.StartIn(w.t.Context(), dir)
		if err != nil {
			w.t.Fatal(err)
		}
		w.t.Cleanup(s.Stop)
		return s
	}
	first := start(dirs[0])
	if _, err := first.Install(w.t.Context(), apiserver.Kind{GroupVersionKind: w.gvk}); err != nil {
		w.t.Fatal(err)
	}
	w.member(first, namespace)
	first.Stop()
	if err := os.CopyFS(filepath.Join(dirs[1], "etcd"), os.DirFS(filepath.Join(dirs[0], "etcd"))); err != nil {
		w.t.Fatal(err)
	}
	return [2]*apiserver.Server{start(dirs[0]), start(dirs[1])}
}

// user returns a new user of the server, and a function that takes its rights away.
func user() (config *rest.Config, revoke func()) {
	var revoked atomic.Bool
	return server.User(func(authorizer.Attributes) bool { return !revoked.Load() }), func() { revoked.Store(true) }
}

// Each user loses its rights when the next one takes over.
func TestCredentialsAreSwappedUnderLoad(t *testing.T) {
	w := newWorldOf(t, "swaps.example.com")
	east, f := w.member(server, "east"), newFleet(t, func(err error) { t.Error(err) })
	config, revoke := user()
	err := f.Engage("east", f.source(east, config, "east"))
	informertest.Run(t, f)
	halt := east.writing()
	for n := range sized(1000) {
		next, revokeNext := user()
		err = errors.Join(err, f.Replace("east", f.source(east, next, "east")))
		revoke()
		if revoke = revokeNext; n%3 == 0 { // the others come while a request of the one before is under way
			f.eventually("the credentials are not used", func() bool { return f.token.Load() == next.BearerToken })
			f.reads("east", east)
		}
	}
	halt()
	f.complete("east", east)
	if n := f.lists.Load(); n != 1 || err != nil {
		t.Errorf("%d lists, %v", n, err)
	}
	t.Logf("%d credentials, %d events", sized(1000), f.events("east"))
}

// The objects of both clusters have the same UIDs and versions.
func TestTwoCopiesOfOneEtcdAreTwoClusters(t *testing.T) {
	w := newWorldOf(t, "copies.example.com")
	var back atomic.Int64 // how often a cluster has gone back in time
	servers := copies(w, "default")
	f := newFleet(t, func(err error) {
		if back.Add(1); !strings.Contains(err.Error(), "gone back in time") {
			t.Error(err)
		}
	})
	a, b := w.member(servers[0], "default"), w.member(servers[1], "default")
	ofA, ofB := f.source(a, servers[0].Config(), "default"), f.source(b, servers[1].Config(), "default")
	if err := errors.Join(f.Engage("a", ofA), f.Engage("b", ofB)); err != nil {
		t.Fatal(err)
	}
	informertest.Run(t, f)
	f.settles("a", b)
	f.settles("b", a)

	untouched := f.events("b")
	a.writes(50)
	f.settles("a", a)
	if f.settles("b", b); f.events("b") != untouched {
		t.Error("changes in a are events of b")
	}
	b.writes(50) // to the same objects, with the same versions, but other sizes
	f.settles("b", b)
	alike := 0
	for key, inB := range f.In("b").All() {
		atB, err := b.writers[0].Get(t.Context(), key.Name, metav1.GetOptions{})
		inA, there, failed := f.In("a").Get(key)
		if err := errors.Join(err, failed); err != nil || !there || !cmp.Equal(inB, atB) {
			t.Errorf("%v: %v (-store +server):\n%s", key, err, cmp.Diff(inB, atB))
		} else if version(inA) == version(inB) && !cmp.Equal(inA, inB) {
			alike++
		}
	}
	if alike == 0 {
		t.Error("no versions are alike")
	}
	haltA, haltB := a.writing(), b.writing()
	f.eventually("there are few events", func() bool { return f.events("a")+f.events("b") > sized(1500) })
	haltA()
	haltB()
	f.complete("a", a)
	f.complete("b", b)
	if back.Load() != 0 {
		t.Error("a cluster has gone back in time")
	}

	a.writes(100) // b is behind
	f.settles("a", a)
	for _, uid := range []types.UID{"uid", "another"} {
		ofB.UID = uid
		err := f.Replace("a", ofB)
		f.settles("a", b)
		if err = errors.Join(err, f.Replace("a", ofA)); err != nil {
			t.Error(err)
		}
		if uid == "another" { // with the same UID there is no list, and an object that b has in another state of that version stays so
			f.settles("a", a)
		}
	}
	if f.settles("b", b); back.Load() != 1 {
		t.Errorf("with the same UID, an older state was reported %d times", back.Load())
	}
}

func TestClustersOfSecretsOnARealServer(t *testing.T) {
	w := newWorldOf(t, "secrets.example.com")
	hub, err := apiserver.StartWithPods(t.Context()) // it has the Secrets, and is a cluster as well
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(hub.Stop)
	_, err = hub.Install(t.Context(), apiserver.Kind{GroupVersionKind: w.gvk})
	client, failed := corev1client.NewForConfig(hub.Config())
	if err = errors.Join(err, failed); err != nil {
		t.Fatal(err)
	}
	east, west, f := w.member(server, "default"), w.member(hub, "default"), newFleet(t, func(err error) { t.Error(err) })
	provider, err := clusters.New(clusters.Secrets{Client: client, Namespace: "fleet", Selector: "fleet=eu"},
		clusters.Options{ErrorHandler: func(_ context.Context, err error) {
			if strings.Contains(err.Error(), "s3cret") || !strings.Contains(err.Error(), "kubeconfig") {
				t.Error(err)
			}
		}},
		clusters.Follow(f.Clusters, func(config *rest.Config) (cache.ListerWatcher, error) {
			config.Wrap(informer.Transport)
			return f.source(east, config, "default").Source, nil
		}))
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := func(config *rest.Config) string {
		text, err := apiserver.Kubeconfig(config)
		w.do(err)
		return string(text)
	}
	secrets := client.Secrets("fleet")
	put := func(name, text string) {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"fleet": "eu"}}, Data: map[string][]byte{"kubeconfig": []byte(text)}}
		_, err := secrets.Update(t.Context(), secret, metav1.UpdateOptions{})
		if apierrors.IsNotFound(err) {
			_, err = secrets.Create(t.Context(), secret, metav1.CreateOptions{})
		}
		w.do(err)
	}
	config, revoke := user()
	good := kubeconfig(config)
	put("east", good)
	informertest.Run(t, f)
	informertest.Run(t, provider)
	f.settles("east", east)

	refused := func() bool { return provider.MemberHealth().(clusters.Health).Clusters[0].Refused != "" }
	halt := east.writing()
	for what, text := range map[string]string{
		"garbled": "s3cret: [" + good, "cut off": good[:len(good)/2], "empty": "", "too large": good + strings.Repeat("# s3cret\n", clusters.MaxSize/9),
		"exec": strings.Replace(good, "    token: ", "    exec: {apiVersion: client.authentication.k8s.io/v1, command: s3cret, interactiveMode: Never}\n    token: ", 1),
	} {
		put("east", text)
		f.eventually(what+" is not refused", refused)
		f.reads("east", east)
		for range 3 {
			next, revokeNext := user()
			put("east", kubeconfig(next))
			f.eventually("the credentials are not used", func() bool { return f.token.Load() == next.BearerToken })
			revoke()
			revoke = revokeNext
			f.reads("east", east)
		}
		f.eventually("good credentials are refused", func() bool { return !refused() })
	}
	halt()
	f.complete("east", east)

	left := func(name string) {
		f.eventually(name+" does not leave", func() bool {
			f.mu.Lock()
			defer f.mu.Unlock()
			return len(f.view[name]) == 0 && f.last == informer.OriginLeft
		})
	}
	w.do(secrets.Delete(t.Context(), "east", metav1.DeleteOptions{})) // it comes back with another name
	left("east")
	put("prod", kubeconfig(server.Config()))
	f.settles("prod", east)
	put("prod", kubeconfig(hub.Config()))
	f.settles("prod", west)
	w.do(secrets.Delete(t.Context(), "prod", metav1.DeleteOptions{}))
	left("prod")
	if n, names := f.lists.Load(), f.Engaged(); n != 3 || len(names) != 0 {
		t.Errorf("%d lists of three new clusters; now there are %v", n, names)
	}
	t.Logf("%d events of east", f.events("east"))
}
