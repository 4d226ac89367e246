package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/e2e/apiserver"
	"github.com/customcacheinformer/informer/e2e/internal/process"
	"github.com/customcacheinformer/informer/e2e/operator/internal/cluster"
	"github.com/customcacheinformer/informer/examples/operator/website"
)

const (
	namespace = "default"
	buckets   = 64 // the default of package shards
	// every is the time between two Websites.
	every = 100 * time.Millisecond
)

// world is a cluster with Websites, and replicas of the operator, which run as processes. It learns
// from the Leases who has which bucket.
type world struct {
	*cluster.Cluster
	program  string // file of the operator
	out      io.Writer
	leases   *informer.CustomCacheInformer[*coordinationv1.Lease]
	stop     context.CancelFunc
	ended    chan error          // receives the result of the leases' informer
	replicas map[string]*replica // those that run, by name
	all      []*replica          // also those that have exited

	// stopMaking ends makeSites, and returns its result.
	stopMaking func() error

	mu      sync.Mutex           // protects the rest
	made    map[string]time.Time // when each Website was made, zero when it has a status
	hosts   map[string]string    // of all Websites that were made
	slowest time.Duration        // from the creation of a Website to its status, since the last call of waited
}

type replica struct {
	*process.Process
	name    string
	session atomic.Pointer[string] // the end of its id in the Leases; another one after it was lost
	front   *cluster.Front
	waking  atomic.Bool  // after a pause, until it asks for another session
	strays  atomic.Int64 // its writes in that time, except those of Leases
}

func newWorld(ctx context.Context, program string, out io.Writer) (w *world, err error) {
	w = &world{
		program: program, out: out, ended: make(chan error, 1), replicas: map[string]*replica{},
		made: map[string]time.Time{}, hosts: map[string]string{},
	}
	if w.Cluster, err = cluster.Start(ctx); err != nil {
		return nil, err
	}
	if err := errors.Join(w.connect(ctx), w.listen()); err != nil {
		return nil, errors.Join(err, w.Stop())
	}
	running, cancel := context.WithCancel(context.Background())
	w.stop = cancel
	go func() { w.ended <- w.leases.Run(running) }()
	if err := w.leases.WaitForSync(ctx); err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

// connect installs a stand-in for Leases, and makes an informer of them.
func (w *world) connect(ctx context.Context) error {
	if _, err := w.Install(ctx, apiserver.Kind{GroupVersionKind: coordinationv1.SchemeGroupVersion.WithKind("Lease")}); err != nil {
		return err
	}
	config := w.Config()
	config.ContentType = runtime.ContentTypeJSON // the Leases are a stand-in, see Install
	client, err := coordination.NewForConfig(config)
	if err != nil {
		return err
	}
	w.leases, err = informer.New(client.Leases(namespace), informer.Options[*coordinationv1.Lease]{})
	return err
}

// listen has the world notice when a Website gets its first status.
func (w *world) listen() error {
	_, err := w.Websites.AddWatcher(informer.WatcherFunc[*website.Website](func(_ context.Context, e informer.Event[*website.Website]) error {
		if e.New == nil || e.New.Status.Phase == "" {
			return nil
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if at := w.made[e.New.Name]; !at.IsZero() {
			w.slowest = max(w.slowest, time.Since(at))
			w.made[e.New.Name] = time.Time{}
		}
		return nil
	}), informer.WatcherOptions{Name: "statuses"})
	return err
}

// close ends everything. The goroutine that makes Websites must have returned.
func (w *world) close() error {
	for _, r := range w.all {
		r.Kill()
		r.front.Close()
	}
	w.stop()
	return errors.Join(<-w.ended, w.Stop())
}

// say prints a line below a step.
func (w *world) say(format string, args ...any) { fmt.Fprintf(w.out, "   "+format+"\n", args...) }

// logs returns the logs of all replicas.
func (w *world) logs() string {
	var text strings.Builder
	for _, r := range w.all {
		fmt.Fprintf(&text, "the log of %s:\n%s", r.name, r.Log)
	}
	return text.String()
}

func (w *world) startMaking(ctx context.Context) {
	ctx, stop := context.WithCancel(ctx)
	made := make(chan error, 1)
	go func() { made <- w.makeSites(ctx) }()
	w.stopMaking = sync.OnceValue(func() error { stop(); return <-made })
}

// makeSites makes a hundred Websites, and then one after another until ctx ends.
func (w *world) makeSites(ctx context.Context) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for n := 0; ; n++ {
		if n >= 100 {
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
		}
		key := types.NamespacedName{Namespace: namespace, Name: fmt.Sprintf("site-%04d", n)}
		w.mu.Lock()
		w.made[key.Name], w.hosts[key.Name] = time.Now(), cluster.Host(key)
		w.mu.Unlock()
		if err := w.CreateSites(context.WithoutCancel(ctx), []types.NamespacedName{key}); err != nil {
			return err
		}
	}
}

// sites returns the hosts of all Websites that were made, by name.
func (w *world) sites() map[string]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.hosts)
}

// waited returns the longest time in which a Website has got its first status since the last call.
func (w *world) waited() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	slowest := w.slowest
	w.slowest = 0
	return slowest.Round(time.Millisecond)
}

// settle waits until all Websites that were made have an Ingress and a status for their hosts. It
// returns how many there are.
func (w *world) settle(ctx context.Context) (int, error) {
	sites := w.sites()
	for name, host := range sites {
		if _, _, err := w.Settled(ctx, types.NamespacedName{Namespace: namespace, Name: name}, host, website.Pending); err != nil {
			return 0, err
		}
	}
	return len(sites), nil
}

// move gives the Websites that were made other hosts.
func (w *world) move(ctx context.Context, prefix string) (int, error) {
	var keys []types.NamespacedName
	w.mu.Lock()
	for name, at := range w.made {
		if !at.IsZero() {
			continue // it may not be there yet
		}
		keys = append(keys, types.NamespacedName{Namespace: namespace, Name: name})
		w.hosts[name] = prefix + name
	}
	w.mu.Unlock()
	return len(keys), w.MoveSites(ctx, keys, func(key types.NamespacedName) string { return prefix + key.Name })
}

// start starts a replica, and waits until it has joined.
func (w *world) start(ctx context.Context, name string) error {
	known := w.sessions()
	r := &replica{name: name}
	var err error
	if r.front, err = w.Front(r.before); err != nil {
		return err
	}
	r.Process, err = process.Start(exec.CommandContext(ctx, w.program, "-shards", "-kubeconfig", r.front.Kubeconfig))
	if err != nil {
		r.front.Close()
		return err
	}
	w.replicas[name], w.all = r, append(w.all, r)
	return w.joined(ctx, r, known)
}

func (w *world) joined(ctx context.Context, r *replica, known []string) error {
	return w.until(ctx, r.name+" does not join", func() bool {
		return slices.ContainsFunc(w.sessions(), func(id string) bool {
			session := r.session.Load()
			return session != nil && endOf(id) == *session && !slices.Contains(known, id)
		})
	})
}

// endOf returns the end of a session's id, which the name of its Lease has, too.
func endOf(id string) string { return id[strings.LastIndex(id, "_")+1:] }

var sessionName = regexp.MustCompile("websites-session-([0-9a-f]+)")

// before looks at a request of the replica.
func (r *replica) before(req *http.Request) {
	switch verb, resource, _ := cluster.RequestOf(req); {
	case verb == http.MethodGet:
	case resource != "leases":
		if r.waking.Load() {
			r.strays.Add(1)
		}
	case verb == http.MethodPost:
		r.waking.Store(false)
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return // the request fails, too
		}
		req.Body = io.NopCloser(bytes.NewReader(body))
		if name := sessionName.FindSubmatch(body); name != nil {
			session := string(name[1])
			r.session.Store(&session)
		}
	}
}

// until waits until done returns true. The error describes what has not happened.
func (w *world) until(ctx context.Context, not string, done func() bool) error {
	err := wait.PollUntilContextCancel(ctx, 10*time.Millisecond, true, func(context.Context) (bool, error) {
		for _, r := range w.replicas {
			select {
			case <-r.Ended():
				return false, fmt.Errorf("%s exited by itself", r.name)
			default:
			}
		}
		return done(), nil
	})
	if err != nil {
		return fmt.Errorf("%s: %w: %w; the buckets: %s", not, err, context.Cause(ctx), w.division())
	}
	return nil
}

func (w *world) sessions() (ids []string) {
	for _, lease := range w.leases.All() {
		if strings.HasPrefix(lease.Name, "websites-session-") {
			ids = append(ids, *lease.Spec.HolderIdentity)
		}
	}
	return ids
}

// owners returns the ids of the sessions that have the buckets, "" for none, by the names of the
// buckets' Leases.
func (w *world) owners() map[string]string {
	owners := map[string]string{}
	for _, lease := range w.leases.All() {
		if strings.HasPrefix(lease.Name, "websites-bucket-") {
			owners[lease.Name] = *lease.Spec.HolderIdentity
		}
	}
	return owners
}

// counts returns how many buckets each running replica has, and no replica or another session, "".
func (w *world) counts() map[string]int {
	names := map[string]string{}
	counts := map[string]int{}
	for name, r := range w.replicas {
		counts[name] = 0
		if session := r.session.Load(); session != nil {
			names[*session] = name
		}
	}
	for _, id := range w.owners() {
		counts[names[endOf(id)]]++
	}
	return counts
}

// division describes how many buckets each replica has, and which replica has how many of a replica that has
// ended.
func (w *world) division() string {
	counts := w.counts()
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		if name != "" {
			parts = append(parts, fmt.Sprintf("%s has %d", name, counts[name]))
		}
	}
	if counts[""] > 0 {
		parts = append(parts, fmt.Sprintf("%d have no owner that works", counts[""]))
	}
	return strings.Join(parts, ", ")
}

// balanced waits until each of these replicas has its share of the buckets, and no other replica has any.
// It returns how long that took since a moment.
func (w *world) balanced(ctx context.Context, since time.Time, names ...string) (time.Duration, error) {
	err := w.until(ctx, fmt.Sprintf("the buckets are not divided over %v", names), func() bool {
		counts, sum := w.counts(), 0
		for _, name := range names {
			n := counts[name]
			if n < buckets/len(names) || n > (buckets+len(names)-1)/len(names) {
				return false
			}
			sum += n
		}
		return sum == buckets
	})
	return time.Since(since).Round(time.Millisecond), err
}

// moved returns how many buckets have another owner than before.
func (w *world) moved(before map[string]string) (n int) {
	for name, id := range w.owners() {
		if before[name] != id {
			n++
		}
	}
	return n
}

// created returns how many Ingresses the replica has created.
func (r *replica) created() int {
	return r.front.Calls()[cluster.Call{Verb: http.MethodPost, Resource: "ingresses", Code: http.StatusCreated}]
}
