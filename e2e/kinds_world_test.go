package e2e_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	typed "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/e2e/apiserver"
	fronts "github.com/customcacheinformer/informer/e2e/internal/front"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/kinds"
)

const (
	ownGroup        = "own.example.com"        // of the kinds with a CRD
	aggregatedGroup = "aggregated.example.com" // of the kind that another API server serves
)

// kindsWorld is an API server with kinds that come and go, another one behind it with an aggregated kind, and a set that reads the kinds
// of both through a front.
type kindsWorld struct {
	*fleet     // over the informer of the set
	main       *apiserver.Server
	front      *fronts.Front
	aggregator aggregator
	set        *kinds.Set[object]
	all        []*kind      // the aggregated one is the last
	forbidden  atomic.Value // the resource that the set may not read now
	writes     int
	moves      map[string]int                             // updates that only show another version of the API, by kind
	left       map[string]int                             // deletes because a kind is gone, by kind
	apiVersion map[string]map[types.NamespacedName]string // of each object as the watcher knows it, by kind
}

// kind is a kind with one writer. The ledger of the writer is since the last check.
type kind struct {
	*member
	in     *kindsWorld
	server *apiserver.Server
	name   string // for the set

	plural  string
	cluster bool      // its objects have no namespace
	v2      bool      // version v2 is served, and so it is preferred
	storage string    // the version that is stored
	webhook bool      // conversion needs a webhook that is not there
	note    string    // in the schema
	gone    bool      // it is not served
	listed  time.Time // when it was listed, at the last check
	lists   int64     // the requests of lists, at the last check
	unasked int64     // those that had no reason
}

// kindsClients returns the clients of a set, without a limit of requests.
func kindsClients(t *testing.T, config *rest.Config) kinds.Clients {
	t.Helper()
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	asks, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return kinds.Clients{Dynamic: client, Discovery: asks}
}

// runSet runs a set with its informer.
func runSet(t *testing.T, set *kinds.Set[object]) (stop func()) {
	t.Helper()
	group := &informer.Group{}
	for _, m := range []informer.Member{set.Informer(), set} {
		if err := group.Add(m); err != nil {
			t.Fatal(err)
		}
	}
	return informertest.Run(t, group)
}

// installServices makes a server serve APIServices, without the effect that they have in a cluster.
func installServices(ctx context.Context, s *apiserver.Server) error {
	crd := (&kind{plural: "apiservices", cluster: true, storage: "v1"}).definition("apiregistration.k8s.io", "APIService")
	crd.Annotations = map[string]string{apiextensionsv1.KubeAPIApprovedAnnotation: "unapproved, a stand-in"}
	_, err := s.InstallDefinition(ctx, crd)
	return err
}

// newKindsWorld starts servers of its own, because APIServices and discovery belong to all tests of a server.
func newKindsWorld(t *testing.T) *kindsWorld {
	t.Helper()
	start := func() *apiserver.Server {
		s, err := apiserver.Start(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Stop)
		return s
	}
	w := &kindsWorld{main: start(), moves: map[string]int{}, left: map[string]int{}, apiVersion: map[string]map[types.NamespacedName]string{}}
	other := start()
	if err := installServices(t.Context(), w.main); err != nil {
		t.Fatal(err)
	}
	w.forbidden.Store("")
	user := w.main.User(func(a authorizer.Attributes) bool {
		return a.IsReadOnly() && (a.GetResource() == "" || a.GetResource() != w.forbidden.Load())
	})
	w.aggregator.main, w.aggregator.other = passTo(t, user), passTo(t, other.Config())
	var err error
	if w.front, err = fronts.New(&w.aggregator); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.front.Close)
	config := w.front.Config()
	config.Wrap(informer.Transport)
	w.set, err = kinds.New(kindsClients(t, config), kinds.Options[object]{
		Wanted:       func(o kinds.Offer) bool { return o.Group == aggregatedGroup || o.Kind == "Gadget" },
		ErrorHandler: w.report,
		Informer: informer.Options[object]{
			ErrorHandler: w.report,
			Backoff:      &wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Steps: 5, Cap: time.Second},
		},
	})
	if err == nil {
		_, err = w.set.Acquire(kinds.Kind{Group: ownGroup, Kind: "Widget"})
	}
	if err != nil {
		t.Fatal(err)
	}
	w.fleet = &fleet{Clusters: w.set.Informer(), t: t, told: map[string]map[string][]moment{}, view: map[string]map[types.NamespacedName]string{}}
	if _, err := w.AddWatcher(informer.WatcherFunc[object](w.tellOrMove), informer.WatcherOptions{MaxBacklog: -1}); err != nil {
		t.Fatal(err)
	}
	runSet(t, w.set)
	for _, name := range []string{"Widget", "Gadget", "Gizmo"} {
		w.add(w.main, name, ownGroup)
	}
	if _, err = w.set.Acquire(kinds.Kind{Group: ownGroup, Kind: "Gizmo"}); err != nil {
		t.Fatal(err)
	}
	w.add(other, "Remote", aggregatedGroup)
	w.aggregate("True")
	for _, k := range w.all {
		k.writes(20)
		k.check()
	}
	return w
}

// add installs a kind.
func (w *kindsWorld) add(s *apiserver.Server, name, group string) {
	k := &kind{
		in: w, server: s, name: name + "." + group, plural: strings.ToLower(name) + "s", storage: "v1",
		member: &member{
			world:  &world{t: w.t, gvk: schema.GroupVersionKind{Group: group, Version: "v1", Kind: name}, writers: []dynamic.ResourceInterface{nil}},
			random: rand.New(rand.NewPCG(uint64(len(w.all)), 59)), there: map[int]types.UID{}, wrote: map[string][]moment{},
		},
	}
	k.install()
	w.all = append(w.all, k)
}

// tellOrMove notes an event.
func (w *kindsWorld) tellOrMove(ctx context.Context, e informer.Event[object]) error {
	if strings.Contains(e.Cluster(), "@") {
		return nil // of a lease that a disturbance has for a while
	}
	w.mu.Lock()
	name, moved := e.Cluster(), e.Type == informer.EventUpdated && version(e.New) == version(e.Old)
	if w.apiVersion[name] == nil {
		w.apiVersion[name] = map[types.NamespacedName]string{}
	}
	if e.Origin == informer.OriginLeft {
		w.left[name]++
	}
	if moved {
		w.moves[name]++
		if e.Origin != informer.OriginRelist || e.New.GetAPIVersion() == e.Old.GetAPIVersion() || w.view[name][e.Key()] != version(e.New) {
			w.t.Errorf("%s: %v comes twice, in %s", name, e, e.New.GetAPIVersion())
		}
	}
	w.apiVersion[name][e.Key()] = e.Object().GetAPIVersion()
	w.mu.Unlock()
	if moved {
		return nil
	}
	return w.tell(ctx, e)
}

func (k *kind) definition(group, name string) *apiextensionsv1.CustomResourceDefinition {
	yes, url := true, "https://127.0.0.1:1/convert"
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: k.plural + "." + group}}
	crd.Spec = apiextensionsv1.CustomResourceDefinitionSpec{
		Group: group, Scope: apiextensionsv1.NamespaceScoped,
		Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: k.plural, Kind: name},
	}
	if k.cluster {
		crd.Spec.Scope = apiextensionsv1.ClusterScoped
	}
	for _, v := range []string{"v1", "v2"} {
		crd.Spec.Versions = append(crd.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{
			Name: v, Served: v == "v1" || k.v2, Storage: v == k.storage,
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
				Type: "object", XPreserveUnknownFields: &yes, Description: k.note,
			}},
		})
	}
	if k.webhook {
		crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{
			Strategy: apiextensionsv1.WebhookConverter,
			Webhook: &apiextensionsv1.WebhookConversion{
				ClientConfig: &apiextensionsv1.WebhookClientConfig{URL: &url}, ConversionReviewVersions: []string{"v1"},
			},
		}
	}
	return crd
}

// install creates the CRD, and waits until it is served. Then the writer of the kind can write.
func (k *kind) install() {
	k.t.Helper()
	if _, err := k.server.InstallDefinition(k.t.Context(), k.definition(k.gvk.Group, k.gvk.Kind)); err != nil {
		k.t.Fatal(err)
	}
	k.served()
}

func (k *kind) served() {
	k.gvr, k.gone = k.gvk.GroupVersion().WithResource(k.plural), false
	if k.writers[0] = k.client(k.server.Config()); !k.cluster {
		k.writers[0] = k.client(k.server.Config()).Namespace(namespace)
	}
}

func (k *kind) crds() typed.CustomResourceDefinitionInterface {
	k.t.Helper()
	client, err := clientset.NewForConfig(k.server.Config())
	if err != nil {
		k.t.Fatal(err)
	}
	return client.ApiextensionsV1().CustomResourceDefinitions()
}

// change brings the CRD to the fields of k.
func (k *kind) change() {
	k.t.Helper()
	want := k.definition(k.gvk.Group, k.gvk.Kind)
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		crd, err := k.crds().Get(k.t.Context(), want.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		crd.Spec = want.Spec
		_, err = k.crds().Update(k.t.Context(), crd, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		k.t.Fatal(err)
	}
}

// uninstall deletes the CRD while objects are written, and waits until it is gone.
func (k *kind) uninstall() {
	k.t.Helper()
	name := k.gvr.GroupResource().String()
	k.may = func(error) bool { return true } // nothing is served in the end
	halt := k.busy()
	if err := k.crds().Delete(k.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		k.t.Fatal(err)
	}
	k.in.eventually("the CRD "+name+" is not deleted", func() bool {
		_, err := k.crds().Get(k.t.Context(), name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	halt()
	k.may, k.gone = nil, true
	k.lose()
}

// lose notes in the ledger that all objects are deleted.
func (k *kind) lose() {
	for n, uid := range k.there {
		if uid != "" {
			k.wrote[name(n)] = append(k.wrote[name(n)], moment{state: fmt.Sprint("deleted ", uid)})
			k.there[n] = ""
		}
	}
}

// busy writes until the returned function is called, with pauses in which others can.
func (k *kind) busy() (halt func()) {
	over := make(chan struct{})
	var writing sync.WaitGroup
	writing.Go(func() {
		for pace := time.Tick(20 * time.Millisecond); ; k.write() {
			select {
			case <-pace:
			case <-over:
				return
			}
		}
	})
	halt = sync.OnceFunc(func() { close(over); writing.Wait() })
	k.t.Cleanup(halt)
	return halt
}

// of makes t the test that fails.
func (w *kindsWorld) of(t *testing.T) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.t = t
	for _, k := range w.all {
		k.t = t
	}
}

func (w *kindsWorld) report(_ context.Context, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.t.Logf("%s reported: %v", time.Now().Format("05.000"), err)
}

// count returns how often something has happened to a kind.
func (w *kindsWorld) count(of map[string]int, k *kind) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return of[k.name]
}

// forbid takes the right to a resource away, or with "" gives it back, and ends all watches.
func (w *kindsWorld) forbid(resource string) {
	w.forbidden.Store(resource)
	w.front.CloseClientConnections()
}

// parked waits until the kind is parked for a reason that contains text. Then it fails the test if the kind has an event or loses its
// objects, or if the others do not go on.
func (k *kind) parked(text string) {
	k.t.Helper()
	k.in.is(k.name, kinds.Parked, text)
	events, objects := k.in.events(k.name), k.stored()
	k.writes(5)
	k.othersGoOn()
	k.in.is(k.name, kinds.Parked, text)
	if n := k.in.events(k.name); n != events || k.stored() != objects || objects == 0 {
		k.t.Errorf("%s is parked, and had %d events and %d objects before, and %d and %d after", k.name, events, objects, n, k.stored())
	}
}

func (k *kind) stored() (n int) {
	for range k.in.In(k.name).All() {
		n++
	}
	return n
}

// othersGoOn waits until the set has the next write to each of the others.
func (k *kind) othersGoOn() {
	k.t.Helper()
	for _, other := range k.in.all {
		if other != k {
			k.in.reads(other.name, other.member)
		}
	}
}

func (w *kindsWorld) eventually(what string, done func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(patience); !done(); <-time.After(5 * time.Millisecond) { // the servers run in real time
		if time.Now().After(deadline) {
			w.t.Fatalf("%s; Health: %+v", what, w.set.Health())
		}
	}
}

// is waits until a kind is in a state, for a reason that contains text. A kind that only Options.Wanted asks for is not there while it waits.
func (w *kindsWorld) is(name string, state kinds.State, text string) {
	w.t.Helper()
	w.eventually(fmt.Sprintf("%s is not %s, %q", name, state, text), func() bool {
		h, there := w.set.Find(name)
		return (h.State == state || !there && state == kinds.Waiting) && strings.Contains(h.Reason, text)
	})
}

// settles waits until the store and the watcher have the objects of the server, in the preferred version.
func (k *kind) settles() {
	k.t.Helper()
	want, apiVersion := map[types.NamespacedName]string{}, k.gvk.Group+"/v1"
	if k.v2 {
		apiVersion = k.gvk.Group + "/v2"
	}
	if !k.gone {
		want = k.state()
	}
	k.in.eventually(k.name+" does not get the state of the server", func() bool {
		stored := map[types.NamespacedName]string{}
		for key, obj := range k.in.In(k.name).All() {
			if stored[key] = version(obj); obj.GetAPIVersion() != apiVersion {
				return false
			}
		}
		k.in.mu.Lock()
		defer k.in.mu.Unlock()
		for key := range k.in.view[k.name] {
			if k.in.apiVersion[k.name][key] != apiVersion {
				return false
			}
		}
		return cmp.Equal(want, stored) && cmp.Equal(want, k.in.view[k.name], cmpopts.EquateEmpty())
	})
}

// check settles, and fails the test unless the events are among the writes since the last check, in order, and each once. If the set has not
// listed the kind since then, each write must have an event. It reports whether the set has listed the kind although its last watch was open.
func (k *kind) check() (unasked bool) {
	k.t.Helper()
	k.settles()
	count, list := k.in.aggregator.trafficOf(k.plural), k.in.health(k.name).LastList
	lists, before := count.lists.Load(), k.unasked
	listed := lists > k.lists || list.Sub(k.listed) > 50*time.Millisecond // a list of the last turn may have ended in this one; Health rounds
	k.listed, k.lists, k.unasked = list, lists, count.unasked.Load()
	k.in.mu.Lock()
	defer k.in.mu.Unlock()
	for name, told := range k.in.told[k.name] {
		rest := k.wrote[name]
		for _, event := range told {
			n := slices.IndexFunc(rest, func(wrote moment) bool { return wrote.state == event.state })
			if n < 0 {
				k.t.Errorf("%s: the event %s of %s is none of the writes that remain: %v", k.name, event.state, name, rest)
				break
			}
			rest = rest[n+1:]
		}
	}
	if diff := cmp.Diff(k.wrote, k.in.told[k.name], cmp.Comparer(func(a, b moment) bool { return a.state == b.state }), cmpopts.EquateEmpty()); !listed && diff != "" {
		k.t.Errorf("%s (-written +delivered):\n%s", k.name, diff)
	}
	for _, wrote := range k.wrote {
		k.in.writes += len(wrote)
	}
	k.wrote, k.in.told[k.name] = map[string][]moment{}, map[string][]moment{}
	return k.unasked > before
}
