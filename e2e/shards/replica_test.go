package shards_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/e2e/internal/process"
	"github.com/customcacheinformer/informer/enqueue"
	"github.com/customcacheinformer/informer/shards"
)

type object = *unstructured.Unstructured

type settings struct {
	Name            string
	Recorder        string
	Leases, Objects process.Address // the ways to the API server
	Widgets         schema.GroupVersionResource
	Gadgets         schema.GroupVersionResource
	Reads           bool // Options.Reads has the gadgets; otherwise they are a source
	Divided         bool // each replica caches only the objects of its own namespaces
	Workers         int
	DrainTimeout    time.Duration
	Skew            time.Duration
}

// replica is what a process has that is one.
type replica struct {
	settings
	leases *skewed
	set    *shards.Set
	group  *informer.Group
	caches [kinds]*informer.CustomCacheInformer[object]
	client *http.Client
}

// replicate is a replica until SIGTERM.
func replicate(s settings) error {
	r := &replica{settings: s, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := r.build(); err != nil {
		return err
	}
	go r.obey()
	go r.observe()
	return r.group.Run(ctx)
}

func (r *replica) build() error {
	leases, err := coordination.NewForConfig(r.Leases.Config())
	if err != nil {
		return err
	}
	objects, err := dynamic.NewForConfig(r.Objects.Config())
	if err != nil {
		return err
	}
	r.leases = &skewed{LeaseInterface: leases.Leases(leasesIn)}
	r.leases.by.Store(int64(r.Skew))
	r.set, err = shards.New(r.leases, shards.Options{
		Name: setName, Identity: r.Name, Buckets: buckets,
		LeaseDuration: lease, RenewEvery: renew, Margin: margin, DrainTimeout: r.DrainTimeout, ByNamespace: r.Divided,
	})
	if err != nil {
		return err
	}
	r.group = &informer.Group{ErrorHandler: func(_ context.Context, err error) { say("%v", err) }}
	for kind, resource := range []schema.GroupVersionResource{r.Widgets, r.Gadgets} {
		r.caches[kind], err = r.cache(informer.ListWatch(objects.Resource(resource)), informer.Options[object]{
			Name:    resource.Resource,
			Backoff: &wait.Backoff{Duration: 100 * time.Millisecond, Cap: time.Second, Steps: 20, Factor: 2, Jitter: 0.5},
		})
		if err == nil {
			err = r.group.Add(r.caches[kind])
		}
		if err != nil {
			return err
		}
	}
	opts := enqueue.Options{Name: "reconcile", Workers: r.Workers, Shards: r.set, MaxDelay: time.Second}
	sources := []enqueue.Source[types.NamespacedName]{enqueue.For(r.caches[widgets])}
	if r.Reads {
		opts.Reads = []informer.Member{r.caches[gadgets]}
	} else {
		sources = append(sources, enqueue.For(r.caches[gadgets]))
	}
	controller, err := enqueue.NewController(r.reconcile, opts, sources...)
	if err != nil {
		return err
	}
	return errors.Join(r.group.Add(r.set), r.group.Add(controller))
}

// cache returns an informer over all objects of a source, or over those of the replica's namespaces.
func (r *replica) cache(all cache.ListerWatcher, opts informer.Options[object]) (*informer.CustomCacheInformer[object], error) {
	if !r.Divided {
		return informer.NewFrom(all, opts)
	}
	own, err := r.set.Source(all)
	if err != nil {
		return nil, err
	}
	return informer.NewFrom(own, opts)
}

// say writes a line to the log of the process.
func say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, time.Now().Format("15:04:05.000 ")+format+"\n", args...)
}

// obey carries out the orders of the test. It ends the process when the test's process has exited.
func (r *replica) obey() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		if text, ok := strings.CutPrefix(lines.Text(), "skew "); ok {
			by, err := time.ParseDuration(text)
			if err != nil {
				log.Fatal(err)
			}
			r.leases.by.Store(int64(by))
		}
	}
	os.Exit(3)
}

// observe reports to the recorder when this process was not run for a while, and its Health.
func (r *replica) observe() {
	for n, last := 0, time.Now(); ; n++ {
		<-time.After(50 * time.Millisecond)
		about := report{Replica: r.Name}
		if now := time.Now(); now.Sub(last) > longPause {
			about.From, about.To = last.UnixNano(), now.UnixNano()
		}
		for _, h := range r.group.Health() {
			switch h := h.(type) {
			case shards.Health:
				about.Health, about.DrainingFor = h, h.DrainingFor
			case informer.Health:
				about.Foreign += h.Foreign
			}
		}
		for kind, inf := range r.caches {
			for range inf.All() {
				about.Objects[kind]++
			}
			about.Listed[kind], about.Low[kind] = inf.Versions()[0].Listed, inf.ResourceVersion()
		}
		if about.To != 0 || n%4 == 0 {
			r.tell("/report", about, &struct{}{})
		}
		last = time.Now()
	}
}

// tell makes a request to the recorder.
func (r *replica) tell(path string, question, answer any) {
	text, err := json.Marshal(question)
	if err != nil {
		log.Fatal(err)
	}
	resp, err := r.client.Post(r.Recorder+path, "application/json", bytes.NewReader(text))
	if err != nil {
		log.Fatal(err)
	}
	err = json.NewDecoder(resp.Body).Decode(answer)
	_ = resp.Body.Close()
	if err != nil {
		log.Fatal(err)
	}
}

var errRefused = errors.New("the recorder knows a later holder of the bucket")

func (r *replica) reconcile(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
	c := attempt{replica: r, key: key, entered: time.Now()}
	c.looked = c.entered
	bucket, token, _ := shards.Token(ctx)
	var order order
	r.tell("/begin", begin{Replica: r.Name, Key: key.Name, Bucket: bucket, Token: token, Entered: c.entered.UnixNano()}, &order)
	c.look(ctx)
	if order.Refused {
		return 0, errRefused
	}
	for deaf := time.Now().Add(order.Deaf); ; {
		c.read()
		c.work(ctx, order)
		end := end{
			Call: order.Call, Done: order.Stubborn || ctx.Err() == nil, Seen: c.seen,
			Resumed: c.resumed, Alive: c.alive, Cancelled: ctx.Err() != nil,
		}
		if cause := context.Cause(ctx); cause != nil {
			end.Cause = cause.Error()
		}
		r.tell("/end", end, &struct{}{})
		if !time.Now().Before(deaf) {
			return 0, ctx.Err()
		}
		r.tell("/begin", begin{Replica: r.Name, Key: key.Name, Bucket: bucket, Token: token, Entered: time.Now().UnixNano(), Deaf: true}, &order)
		order.Stubborn = true
	}
}

// attempt is a call of reconcile.
type attempt struct {
	*replica
	key            types.NamespacedName
	entered        time.Time
	looked         time.Time // when look was last called
	seen           [kinds]sight
	resumed, alive bool
}

// look notes whether the process was stopped since the last look, and whether ctx is done then.
func (a *attempt) look(ctx context.Context) {
	now := time.Now()
	stopped := now.Sub(a.looked) >= lease
	a.looked = now
	if stopped {
		a.resumed = true
		a.alive = a.alive || ctx.Err() == nil
	}
}

func (a *attempt) read() {
	for kind, inf := range a.caches {
		s := sight{Low: inf.ResourceVersion()}
		obj, found, err := inf.Get(a.key)
		if err != nil {
			log.Fatal(err)
		}
		v := inf.Versions()[0]
		s.Changed, s.Listed = v.Changed, v.Listed
		if found {
			s.UID, s.Version = obj.GetUID(), obj.GetResourceVersion()
			s.Tick, _, _ = unstructured.NestedInt64(obj.Object, "tick")
		}
		a.seen[kind] = s
	}
}

// work takes time. Unless order is otherwise, it heeds ctx.
func (a *attempt) work(ctx context.Context, order order) {
	const portion = 5 * time.Millisecond
	ended := ctx.Done()
	if order.Stubborn {
		ended = nil
	}
	for left := order.For; left > 0; left -= portion {
		since := time.Now()
		select {
		case <-time.After(min(left, portion)):
			if order.Stubborn {
				left -= time.Since(since) - portion // time counts, not portions
			}
		case <-ended:
		}
		a.look(ctx)
		if !order.Stubborn && ctx.Err() != nil {
			return
		}
	}
}

// skewed writes times of a clock that is wrong.
type skewed struct {
	coordination.LeaseInterface
	by atomic.Int64
}

func (s *skewed) Create(ctx context.Context, l *coordinationv1.Lease, opts metav1.CreateOptions) (*coordinationv1.Lease, error) {
	return s.LeaseInterface.Create(ctx, s.shift(l), opts)
}

func (s *skewed) Update(ctx context.Context, l *coordinationv1.Lease, opts metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	return s.LeaseInterface.Update(ctx, s.shift(l), opts)
}

func (s *skewed) shift(l *coordinationv1.Lease) *coordinationv1.Lease {
	l = l.DeepCopy()
	for _, at := range []*metav1.MicroTime{l.Spec.AcquireTime, l.Spec.RenewTime} {
		if at != nil && time.Since(at.Time).Abs() < lease { // just now, and not in an earlier write
			*at = metav1.NewMicroTime(at.Add(time.Duration(s.by.Load())))
		}
	}
	return l
}
