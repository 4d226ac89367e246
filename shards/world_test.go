package shards_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	clienttesting "k8s.io/client-go/testing"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/enqueue"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/sharding"
	"github.com/customcacheinformer/informer/internal/testkit"
	"github.com/customcacheinformer/informer/shards"
)

func TestMain(m *testing.M) { informertest.Main(m) }

// world has an API server with Leases and ConfigMaps, and replicas of one program that reconcile the
// ConfigMaps. It sees every call of every replica.
type world struct {
	t       *testing.T
	leases  *informertest.Source[*coordinationv1.Lease]
	objects *informertest.Source[*corev1.ConfigMap]
	client  *fake.Clientset
	api     coordinationclient.LeaseInterface
	divided bool // by namespace: each replica caches its objects only

	mu       sync.Mutex
	any      *replica
	calls    map[string]string // the replica that has a call under way, by key
	overlaps []string
	seen     map[string]string // the newest version that was reconciled, "" for a deleted object, by key
	deleted  map[string]int    // how often a key was reconciled while its object was deleted
	stale    []string          // calls from an older state than the call before
	read     map[string]int    // the version of the cache at the last call, by key
	count    int
	tokens   map[int]int64                // the highest token of each bucket
	traces   map[string][]string          // what happened to each object
	refused  int                          // effects of calls with a lower one
	unsure   time.Time                    // after a restore: until all replicas have noticed it
	extra    map[string]map[string]string // the newest version that another controller has reconciled, by controller and key
}

func newWorld(t *testing.T, objects int) *world {
	w := &world{
		t: t, leases: informertest.NewSource[*coordinationv1.Lease](), objects: informertest.NewSource[*corev1.ConfigMap](),
		client: fake.NewClientset(), calls: map[string]string{}, seen: map[string]string{}, deleted: map[string]int{},
		read: map[string]int{}, tokens: map[int]int64{}, extra: map[string]map[string]string{}, traces: map[string][]string{},
	}
	w.leases.Serve(&w.client.Fake, "leases", &coordinationv1.LeaseList{})
	w.client.PrependReactor("update", "leases", w.isAbsent)
	w.api = w.client.CoordinationV1().Leases("default")
	for n := range objects {
		w.write(n, "1")
	}
	return w
}

// isAbsent refuses an update of a Lease that is not there as an API server does. It would create the Lease, but its UID is
// another one then: so the answer is a conflict, not NotFound.
func (w *world) isAbsent(a clienttesting.Action) (handled bool, _ runtime.Object, err error) {
	lease := a.(clienttesting.UpdateAction).GetObject().(*coordinationv1.Lease)
	if _, err = w.leases.Get(types.NamespacedName{Namespace: a.GetNamespace(), Name: lease.Name}); err == nil {
		return false, nil, nil
	}
	return true, nil, apierrors.NewConflict(coordinationv1.Resource("leases"), lease.Name, errors.New("UID in object meta: "))
}

// newDividedWorld returns a world whose replicas cache their own objects only.
func newDividedWorld(t *testing.T, objects int) *world {
	w := newWorld(t, 0)
	w.divided = true
	for n := range objects {
		w.write(n, "1")
	}
	return w
}

// inWorld runs a test in a bubble with a world of objects.
func inWorld(t *testing.T, objects int, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newWorld(t, objects)) })
}

func inDividedWorld(t *testing.T, objects int, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newDividedWorld(t, objects)) })
}

// traceLocked notes something that happened to an object.
func (w *world) traceLocked(name, format string, args ...any) {
	w.traces[name] = append(w.traces[name], fmt.Sprint(now(), " ")+fmt.Sprintf(format, args...))
}

// now returns the time since the bubble began.
func now() time.Duration { return time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)) }

func name(n int) string { return fmt.Sprint("object-", n) }

func (w *world) write(n int, value string) {
	obj := configMap(name(n), value)
	obj.Namespace = w.key(n).Namespace
	w.objects.Apply(obj)
}

// writeAll changes 64 objects.
func (w *world) writeAll(value string) {
	for n := range 64 {
		w.write(n, value)
	}
}

func (w *world) remove(n int) {
	w.t.Helper()
	_, err := w.objects.Delete(w.key(n))
	testkit.Must(w.t, err)
}

// key returns the key of an object.
func (w *world) key(n int) types.NamespacedName {
	if w.divided {
		return types.NamespacedName{Namespace: fmt.Sprint("team-", n%20), Name: name(n)}
	}
	return types.NamespacedName{Namespace: "default", Name: name(n)}
}

type replica struct {
	world  *world
	name   string
	link   *link
	set    *shards.Set
	group  *informer.Group
	worker informer.Member // the controller
	cache  *informer.CustomCacheInformer[*corev1.ConfigMap]
	server *selecting            // between the replica and its ConfigMaps, or nil
	extra  bool                  // the set has another Source, which no controller reads
	named  string                // the name of the controller, "objects" by default
	more   []string              // the names of more controllers
	slow   time.Duration         // how long a call takes
	deaf   atomic.Bool           // calls ignore their ctx
	quick  func(key string) bool // calls for these keys take no time, if it is not nil
	again  time.Duration         // what calls ask for
	inCall func(context.Context) // is called in each call, if it is not nil
	kill   context.CancelFunc
	dead   bool         // killed: nothing of it counts any more; protected by world.mu
	wait   func() error // for its end

	mayFail bool // it may end with an error

	mu     sync.Mutex
	errors []error
	told   map[types.UID]bool // the objects whose delete the replica got
}

// options are those of replicas in tests.
func options(name string) shards.Options {
	return shards.Options{Name: "test", Identity: name, Buckets: 16, DrainTimeout: 20 * time.Second}
}

// start starts a replica, which the end of the test stops.
func (w *world) start(name string, change ...func(*shards.Options, *replica)) *replica {
	w.t.Helper()
	r := &replica{world: w, name: name, link: &link{LeaseInterface: w.api, objects: w.objects, world: w}, told: map[types.UID]bool{}}
	opts := options(name)
	opts.ByNamespace = w.divided
	for _, f := range change {
		f(&opts, r)
	}
	var err error
	if r.set, err = shards.New(r.link, opts); err != nil {
		w.t.Fatal(err)
	}
	r.cache, err = r.newCache(informer.Options[*corev1.ConfigMap]{Name: "configmaps"})
	testkit.Must(w.t, err)
	_, err = r.cache.AddWatcher(informer.WatcherFuncs[*corev1.ConfigMap]{DeleteFunc: func(_ context.Context, e informer.Event[*corev1.ConfigMap]) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.told[e.Old.UID] = true
		return nil
	}}, informer.WatcherOptions{})
	testkit.Must(w.t, err)
	reconcile := func(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
		if r.inCall != nil {
			r.inCall(ctx)
		}
		return r.again, r.reconcile(ctx, key)
	}
	c, err := enqueue.NewController(reconcile, enqueue.Options{Name: cmp.Or(r.named, "objects"), Workers: 4, CallTimeout: time.Hour, Shards: r.set}, enqueue.For(r.cache))
	testkit.Must(w.t, err)
	r.worker = c
	r.group = &informer.Group{ErrorHandler: func(_ context.Context, err error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.errors = append(r.errors, err)
	}}
	testkit.Must(w.t, errors.Join(r.group.Add(r.cache), r.group.Add(c), r.group.Add(r.set)))
	for _, name := range r.more {
		r.control(name)
	}
	w.any = r
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.t.Context()))
	done := make(chan error, 1)
	go func() { done <- r.group.Run(ctx) }()
	r.kill, r.wait = cancel, sync.OnceValue(func() error { return <-done })
	w.t.Cleanup(r.stop)
	return r
}

// control adds a controller that notes what it reconciles in extra.
func (r *replica) control(name string) {
	w := r.world
	c, err := enqueue.NewController(func(_ context.Context, key types.NamespacedName) (time.Duration, error) {
		obj, _, err := r.cache.Get(key)
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.extra[name] == nil {
			w.extra[name] = map[string]string{}
		}
		switch {
		case r.dead:
		case obj != nil:
			w.extra[name][key.Name] = obj.ResourceVersion
		default:
			w.extra[name][key.Name] = ""
		}
		return 0, err
	}, enqueue.Options{Name: name, Shards: r.set}, enqueue.For(r.cache))
	testkit.Must(w.t, errors.Join(err, r.group.Add(c)))
}

// waiting returns how many objects have a state that the controller of that name has not reconciled.
func (w *world) waiting(controller string) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, obj := range w.objects.Objects() {
		if w.extra[controller][obj.Name] != obj.ResourceVersion {
			n++
		}
	}
	return n
}

// toldOf reports whether the replica got the delete of an object.
func (r *replica) toldOf(uid types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.told[uid]
}

// stop stops a replica as a rolling update does.
func (r *replica) stop() {
	r.world.t.Helper()
	r.kill()
	if err := r.wait(); err != nil && !r.dead && !r.mayFail {
		r.world.t.Errorf("%s ended with %v", r.name, err)
	}
}

// crash ends a replica without a word to the others, like kill -9: its requests get nowhere, and its
// calls have no effect.
func (r *replica) crash() {
	r.world.t.Helper()
	r.link.cut()
	r.kill()
	w := r.world
	w.mu.Lock()
	r.dead = true
	maps.DeleteFunc(w.calls, func(_, by string) bool { return by == r.name })
	w.mu.Unlock()
}

func (r *replica) owned() int { return r.set.Health().Owned }

// first returns the first object that is in a bucket of the replica.
func (r *replica) first() (n int) {
	for !sharding.Of(r.set).Has(r.world.bucket(name(n))) {
		n++
	}
	return n
}

func (r *replica) reconcile(ctx context.Context, key types.NamespacedName) error {
	w := r.world
	w.mu.Lock()
	if r.dead {
		w.mu.Unlock()
		return nil
	}
	if by, busy := w.calls[key.Name]; busy {
		w.overlaps = append(w.overlaps, fmt.Sprintf("%s: %s and %s at %v", key.Name, by, r.name, time.Now()))
	}
	w.calls[key.Name] = r.name
	w.traceLocked(key.Name, "call by %s begins", r.name)
	w.mu.Unlock()
	obj, exists, err := r.cache.Get(key)
	if err != nil {
		return err
	}
	switch {
	case r.quick != nil && r.quick(key.String()):
		err = ctx.Err()
	case r.deaf.Load():
		err = sleep(context.Background(), r.slow)
	default:
		err = sleep(ctx, r.slow)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.dead {
		return nil
	}
	delete(w.calls, key.Name)
	w.traceLocked(key.Name, "call by %s ends, exists: %v, error: %v", r.name, exists, err)
	if err != nil {
		return err
	}
	w.count++
	bucket, token, ok := shards.Token(ctx)
	if !ok || bucket != sharding.Of(r.set).Bucket(key.String()) {
		w.t.Errorf("the token of %s: %d, %d, %v", key, bucket, token, ok)
	}
	if token < w.tokens[bucket] {
		w.refused++
		return nil
	}
	w.tokens[bucket] = token
	version := 0
	if exists {
		version, _ = strconv.Atoi(obj.ResourceVersion)
		w.seen[key.Name] = obj.ResourceVersion
	} else {
		w.deleted[key.Name]++
		w.seen[key.Name] = ""
	}
	if time.Now().Before(w.unsure) {
		return nil
	}
	if exists && version < w.read[key.Name] {
		w.stale = append(w.stale, fmt.Sprintf("%s: %s saw version %d after %d", key.Name, r.name, version, w.read[key.Name]))
	}
	w.read[key.Name] = max(version, w.read[key.Name])
	return nil
}

// settled waits until time has passed, and checks that every object's newest state was reconciled.
func (w *world) settled(after time.Duration) {
	w.t.Helper()
	time.Sleep(after)
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, obj := range w.objects.Objects() {
		if w.seen[obj.Name] != obj.ResourceVersion {
			w.t.Errorf("%s: version %s is not reconciled, but %q:\n%s", obj.Name, obj.ResourceVersion, w.seen[obj.Name], strings.Join(w.traces[obj.Name], "\n"))
		}
	}
	for _, o := range w.overlaps {
		w.t.Error("overlap: ", o)
	}
	for _, s := range w.stale {
		w.t.Error("stale: ", s)
		w.t.Log(strings.Join(w.traces[strings.Split(s, ":")[0]], "\n"), "\n", strings.Join(w.traces[fmt.Sprint("test-bucket-", w.bucket(strings.Split(s, ":")[0]))], "\n"))
	}
}

// balanced checks that each replica has its share.
func (w *world) balanced(replicas ...*replica) {
	w.t.Helper()
	sum, most := 0, (16+len(replicas)-1)/len(replicas)
	for _, r := range replicas {
		n := r.owned()
		if sum += n; n > most || n < 16/len(replicas) {
			w.t.Errorf("%s has %d of 16 buckets, with %d replicas", r.name, n, len(replicas))
		}
	}
	if sum != 16 {
		w.t.Errorf("%d of 16 buckets have an owner", sum)
	}
}

// apart checks that each object is in the cache of one replica, the one that works on it, and that
// no replica got a delete of an object that is still there.
func (w *world) apart(replicas ...*replica) {
	w.t.Helper()
	cached := map[string]int{}
	for _, r := range replicas {
		for _, obj := range r.cache.All() {
			cached[obj.Name]++
			if key := w.bucket(obj.Name); !sharding.Of(r.set).Has(key) {
				w.t.Errorf("%s caches %s, whose bucket %d it does not have", r.name, obj.Name, key)
			}
			if r.toldOf(obj.UID) {
				w.t.Errorf("%s got the delete of %s, and caches it", r.name, obj.Name)
			}
		}
	}
	for _, obj := range w.objects.Objects() {
		if cached[obj.Name] != 1 {
			w.t.Errorf("%s is in %d caches", obj.Name, cached[obj.Name])
		}
		for _, r := range replicas {
			if r.toldOf(obj.UID) {
				w.t.Errorf("%s got the delete of %s", r.name, obj.Name)
			}
		}
	}
}

func (r *replica) took() []error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.errors)
}

func (w *world) bucket(name string) int {
	n, err := strconv.Atoi(strings.TrimPrefix(name, "object-"))
	testkit.Must(w.t, err)
	return sharding.Of(w.any.set).Bucket(w.key(n).String())
}

// quiet checks that replicas have reported no error.
func (w *world) quiet(replicas ...*replica) {
	w.t.Helper()
	for _, r := range replicas {
		if errs := r.took(); len(errs) > 0 {
			w.t.Errorf("%s reports %v", r.name, errs)
		}
	}
}

// reports checks that the replica has reported one error, which has a text.
func (r *replica) reports(text string) {
	r.world.t.Helper()
	synctest.Wait()
	if errs := r.took(); len(errs) != 1 || !strings.Contains(errs[0].Error(), text) {
		r.world.t.Errorf("%s reports %v, want %q", r.name, errs, text)
	}
}

// handled checks that the delete of an object is reconciled.
func (w *world) handled(name string) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.deleted[name] == 0 {
		w.t.Errorf("the delete of %s is not reconciled:\n%s", name, strings.Join(w.traces[name], "\n"))
	}
}
