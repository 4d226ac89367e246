package informer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/watchlist"
	"k8s.io/klog/v2"

	"github.com/customcacheinformer/informer/internal/channel"
	"github.com/customcacheinformer/informer/internal/framing"
	"github.com/customcacheinformer/informer/internal/object"
	"github.com/customcacheinformer/informer/internal/source"
	"github.com/customcacheinformer/informer/internal/stopwatch"
	"github.com/customcacheinformer/informer/internal/turns"
	"github.com/customcacheinformer/informer/internal/version"
)

// Client is a typed client for one resource. T is the type of its objects, and L the type of its lists. The clients
// of client-go's clientsets, such as clientset.CoreV1().Pods(""), and all others that client-gen generates implement
// Client. An informer of [New] calls only List and Watch. Get is in the interface so that the compiler can infer T
// from its result.
type Client[T Object, L runtime.Object] interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (T, error)
	List(ctx context.Context, opts metav1.ListOptions) (L, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

// UntypedClient is a client for one resource that does not declare the type of its objects, such as a resource
// interface of the dynamic or the metadata client. L is the type of its lists.
type UntypedClient[L runtime.Object] interface {
	List(ctx context.Context, opts metav1.ListOptions) (L, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

// ListWatch returns a source for [NewFrom] from an untyped client, such as a resource interface of the dynamic
// or the metadata client. ListWatch makes no request. If client is nil, NewFrom returns an error.
//
// ListWatch recognizes client-go's fakes. Because these cannot stream, it makes the informer use LIST. It
// does not recognize a fake inside a type of your own: over such a client, an informer takes 10 s to sync
// unless Options.WatchList is WatchListOff. Fakes have further limits that an informer cannot remove:
//   - Their objects have no resourceVersions, so WaitForVersion and ResourceVersion do not work.
//   - A delete between the LIST and the WATCH is lost.
//   - A fake's watch has room for 100 events. If a program writes more without a pause, the fake may panic.
//
// Package informertest has a source without these limits.
func ListWatch[L runtime.Object](client UntypedClient[L]) cache.ListerWatcher {
	return &clientListWatch{
		ListWatch: cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
				list, err := client.List(ctx, opts)
				if err != nil {
					return nil, err // and not a typed nil in an interface
				}
				return list, nil
			},
			WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
				return client.Watch(ctx, opts)
			},
		},
		client:  client,
		framing: framingOf[L](client),
	}
}

type clientListWatch struct {
	cache.ListWatch
	client  any
	framing framing.Type
}

// Transport wraps next so that lists and watches of an informer need less memory and time. Add it once to the
// configuration of the clients, before the clients are made:
//
//	config.Wrap(informer.Transport)
//
// An informer then decodes each object of an answer as soon as the object arrives. Without Transport, client-go reads a
// body several times and keeps a whole list in memory. client-go still makes the requests, the retries and the errors.
// Events and the store are the same, with one exception: if an object cannot be decoded, the informer reports an
// [ObjectError] with the object's key, keeps the object's last state, and continues with the other objects. Without
// Transport, one such object makes lists fail.
//
// This works for the dynamic and the metadata client and for typed clients that client-gen has made. It also works for the
// caches of controller-runtime (see [ClientGo]), except its metadata caches. A client or a source of another type may change
// what it receives, so client-go decodes its answers. Other requests pass through unchanged. A wrapper that makes new requests
// without the context of the old ones turns this off. A wrapper that is added to the configuration after Transport gets only
// the rest of a body, so a wrapper that counts bytes must be added before. To turn this off for one informer, set
// Options.Decode to [DecodeByClient]. To turn it off for the whole program, set the environment variable INFORMER_DECODE to
// "client" before Transport is called.
func Transport(next http.RoundTripper) http.RoundTripper {
	if os.Getenv("INFORMER_DECODE") == "client" {
		return next
	}
	return framing.Transport(next)
}

// framingOf returns the type of the client's objects if the client is known to pass on answers of the server
// unchanged, and otherwise the zero Type.
func framingOf[L runtime.Object](client any) framing.Type {
	if object.IsNil(client) || isFake(client) || !framing.PassesUnchanged(reflect.TypeOf(client)) {
		return framing.Type{}
	}
	t, _ := framing.TypeOf(reflect.TypeFor[L]())
	return t
}

// IsWatchListSemanticsUnSupported reports to client-go whether the source is unable to stream its first state.
func (l *clientListWatch) IsWatchListSemanticsUnSupported() bool {
	return watchlist.DoesClientNotSupportWatchListSemantics(l.client) || isFake(l.client)
}

func (l *clientListWatch) check() error {
	if object.IsNil(l.client) {
		return errors.New("the client is nil")
	}
	return nil
}

// isFake reports whether client comes from one of client-go's fake packages. client-go looks for a method of
// the clientset, which the clients that it returns do not have.
func isFake(client any) bool {
	if _, ok := client.(interface{ ClearActions() }); ok {
		return true
	}
	t := reflect.TypeOf(client)
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return strings.HasSuffix(t.PkgPath(), "/fake")
}

func checkSource(lw cache.ListerWatcher) error {
	if object.IsNil(lw) {
		return errors.New("the source (lw) is nil")
	}
	switch l := lw.(type) {
	case *clientListWatch:
		return l.check()
	case *cache.ListWatch:
		//nolint:staticcheck // a program may set a deprecated field
		if l.ListFunc == nil && l.ListWithContextFunc == nil {
			return errors.New("the source (lw) is a cache.ListWatch without ListFunc or ListWithContextFunc")
		}
		//nolint:staticcheck // as above
		if l.WatchFunc == nil && l.WatchFuncWithContext == nil {
			return errors.New("the source (lw) is a cache.ListWatch without WatchFunc or WatchFuncWithContext")
		}
	}
	return nil
}

// newSource returns a source that reads r.lw and reports to the ErrorHandler and the Observer of opts.
func newSource[T Object](r resource, clock stopwatch.Stopwatch, objects *reports, opts Options[T], watchFailed cache.WatchErrorHandlerWithContext) *source.Source {
	name, observer := opts.Name, opts.Observer
	lists := func() *turns.Limit { return opts.Lists.turns } // which a Group may set later
	if l, ok := r.lw.(*clientListWatch); ok && isFake(l.client) {
		lists = nil
	}
	return source.New(r.lw, clock, source.Options{
		Name: name, ListOnly: opts.WatchList == WatchListOff, PageSize: max(0, opts.PageSize),
		Backoff: *opts.Backoff, Tweak: opts.TweakListOptions, Framing: r.tapped(opts.Decode), Lists: lists,
	}, source.Callbacks{
		Failed:      func(ctx context.Context, f *source.Failure) { opts.ErrorHandler(ctx, watchError(name, r.region, f)) },
		Unusable:    func(ctx context.Context, err error) { objects.unusable(ctx, &ObjectError{Op: "watch", Err: err}) },
		WatchFailed: watchFailed,
		Listed: func(l source.List) {
			if observer.List != nil {
				observer.List(ListInfo{Informer: name, Namespace: r.namespace, Cluster: r.cluster.name(), Objects: l.Objects, Took: l.Took, Err: l.Err})
			}
		},
		Watched: func(w source.Watch) {
			if observer.Watch != nil {
				observer.Watch(WatchInfo{Informer: name, Namespace: r.namespace, Cluster: r.cluster.name(), Streaming: w.Streaming, Events: w.Events, Took: w.Took, Err: w.Err})
			}
		},
	})
}

// takeInEarly makes the sources take in lists early, if opts ask for that. The sources must not run yet.
func takeInEarly[T Object](scopes []*scope, opts Options[T]) {
	if !opts.early() {
		return
	}
	for _, s := range scopes {
		s.TakeInEarly(max(0, cmp.Or(opts.PageSize, earlyPageSize)))
	}
}

func watchError(name string, in region, f *source.Failure) error {
	if f == nil {
		return nil
	}
	return &WatchError{Op: f.Op, Resource: name, Namespace: in.namespace, Cluster: in.cluster.name(), Err: f.Err}
}

// region shows what a source reads: the objects of one namespace or of one cluster, or all objects.
type region struct {
	namespace string
	cluster   *Cluster
}

// name returns the name of the namespace or the cluster, or "" if the source reads all objects.
func (r region) name() string {
	if r.cluster != nil {
		return r.cluster.Name
	}
	return r.namespace
}

// prefix returns the prefix that the keys of all objects in the region have.
func (r region) prefix() string {
	if r.namespace != "" {
		return r.namespace + "/"
	}
	return r.cluster.prefix()
}

func (r region) covers(key string) bool { return strings.HasPrefix(key, r.prefix()) }

// logged returns the key and the value with which log lines name the region.
func (r region) logged() (key, name string) {
	if r.cluster != nil {
		return "cluster", r.cluster.Name
	}
	return "namespace", r.namespace
}

type resource struct {
	region
	lw      cache.ListerWatcher
	framing framing.Type // of the objects, if lw delivers them as they come from the server
	omit    *framing.Omission
	tweak   func(*metav1.ListOptions) // of each request about a cluster
}

// tapped returns the type of the objects that are decoded as they arrive, or the zero Type if client-go
// decodes them.
func (r resource) tapped(decode DecodeMode) framing.Type {
	objs := r.framing
	if l, ok := r.lw.(*clientListWatch); ok {
		objs = l.framing
	}
	if decode == DecodeByClient {
		objs = framing.Type{}
	}
	return objs.Without(r.omit)
}

// reading describes the sources of an informer. If each source reads a region, the sources may change.
type reading struct {
	resources []resource
	in        func(namespace string) resource // makes the source of a namespace; nil unless NewInNamespaces has made the informer
	clusters  bool                            // each source reads a cluster
}

// several reports whether the informer has a source for each region, and so may have any number of sources.
func (r reading) several() bool { return r.in != nil || r.clusters }

// sourceOf returns a function that returns the name of a key's region, which is the name of a part of the own
// store.
func (r reading) sourceOf() func(key string) string {
	mark := "/"
	switch {
	case !r.several():
		return func(string) string { return "" }
	case r.clusters:
		mark = object.ClusterMark
	}
	return func(key string) string {
		name, _, _ := strings.Cut(key, mark)
		return name
	}
}

// check returns an error if the source cannot be used. durable is true if the store is a Durable.
func (r resource) check(durable bool) error {
	if _, ok := r.lw.(source.Divided); ok && durable {
		return errors.New("Options.Durable is set, but a Durable cannot hold the parts of a divided source")
	}
	return checkSource(r.lw)
}

// checkNamespaces returns an error if a name comes twice or is not a valid name of a namespace.
func checkNamespaces(names []string) error {
	seen := make(map[string]bool, len(names))
	for _, name := range names {
		if seen[name] {
			return fmt.Errorf("the namespace %q is given twice", name)
		}
		if name == "" {
			return errors.New(`"" is not a name of a namespace: to read all namespaces, use New`)
		}
		if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
			return fmt.Errorf("%q is not a name of a namespace: %s", name, strings.Join(problems, ", "))
		}
		seen[name] = true
	}
	return nil
}

// scope is a source with the region that it reads. An informer over several namespaces or clusters has a scope
// for each. Versions of different namespaces can be compared, but sources differ in how far they are.
type scope struct {
	region
	*source.Source                // nil in the scope of items that come from no source
	divided        source.Divided // nil if the source always delivers the same objects
	wire           *source.Wire   // nil unless the source reads a cluster
	uid            types.UID      // of the cluster, "" if it is not known
	sink           intake
	after          <-chan struct{} // when it is closed, the source may run; nil if it need not wait
	end            func()          // ends the source; nil before it may run
	gone           atomic.Bool     // the informer no longer reads the source
	leave          Leave           // how a cluster leaves; set before gone
	passes         bool            // the objects of a source that is gone stay for the next one of the region; set before gone
	left           chan struct{}   // closed when the objects of a source that is gone are deleted
	lists          bool            // the source was added while the informer ran, so it does not resume
	resume         string          // the version at which the source continues, "" if it must list; set before it runs
	dropped        atomic.Int64    // objects and events outside of the part of a Divided
	listed         atomic.Bool     // the first list is applied, or the source has resumed
	synced         chan struct{}   // closed then

	// changed is the highest version of an object or a delete that the store has, or is about to get. The
	// applier raises it before it writes to the store.
	changed version.Highest

	// gate.mu protects these.
	waiting int    // items that have entered and are not applied
	inLists int    // those of them that are objects of a list
	rv      string // everything up to this version is applied
	base    string // the version of the last list, or at which the source has resumed

	watchOnly bool // every item since the start came from a watch; belongs to the applier
}

// intake receives what the source of a scope delivers.
type intake interface {
	source.Sink
	turn(source.Part) // the source continues with another part
	expect()          // the store may have objects of the source already
	giveUp() bool     // ends the list that comes in; reports whether there is one
}

// run reads the source until ctx ends.
func (s *scope) run(ctx context.Context) {
	defer s.sink.giveUp()
	switch {
	case s.wire != nil:
		s.RunOver(ctx, s.sink, s.wire, s.resume, s.sink.giveUp)
	case s.divided == nil:
		s.Run(ctx, s.sink, s.resume)
	default:
		s.RunParts(ctx, s.sink, func() source.Part {
			part := s.divided.Part()
			s.sink.turn(part)
			return part
		})
	}
}

// changes returns how many changes have entered but are not applied, not counting the objects of lists. The caller holds
// gate.mu.
func (s *scope) changes() int { return s.waiting - s.inLists }

// isLate reports whether the informer still waits for the first list of the scope.
func (s *scope) isLate() bool { return !s.listed.Load() && !s.loose() }

// loose reports whether the region is a cluster that only the store knows, because nothing has engaged it
// yet.
func (s *scope) loose() bool { return s.wire != nil && s.wire.Loose() }

// roster starts and ends the sources of an informer.
type roster struct {
	mu       sync.Mutex      // held while the set of sources changes
	ctx      context.Context // of the sources; nil before they may run
	sources  sync.WaitGroup
	last     map[string]*scope // the source that left last, of each region whose deletes are not in the store yet
	running  sync.Map          // the sources that have not returned, as *scope
	engaged  sync.Map          // the clusters that are engaged: name to *scope; changed with mu held
	clusters bool              // the sources are clusters
	unread   bool              // it is not known yet of which clusters the store has objects
}

// begin starts the sources of the set.
func (r *roster) begin(ctx context.Context, set func() []*scope) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ctx = ctx
	for _, s := range set() {
		r.start(s)
	}
}

// change ends the sources in gone, and starts those in come.
func (r *roster) change(come, gone []*scope, running bool) {
	switch {
	case r.ctx == nil || len(come)+len(gone) == 0:
	case r.clusters:
		klog.FromContext(r.ctx).V(2).Info("The informer reads other clusters", "added", someOf(come), "removed", someOf(gone))
	default:
		klog.FromContext(r.ctx).V(2).Info("The informer reads other namespaces", "added", someOf(come), "removed", someOf(gone))
	}
	maps.DeleteFunc(r.last, func(_ string, s *scope) bool { return channel.Closed(s.left) })
	for _, s := range gone {
		if s.end != nil {
			s.end()
		}
		if running {
			r.last[s.name()] = s
		}
	}
	for _, s := range come {
		if before := r.last[s.name()]; before != nil {
			s.after = before.left
		}
		r.start(s)
	}
}

// someOf returns the names of the regions of a set: of the first ten, and the number of the others.
func someOf(set []*scope) string {
	const shown = 10
	var names []string
	for _, s := range set[:min(shown, len(set))] {
		names = append(names, s.name())
	}
	if more := len(set) - shown; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, " ")
}

// start starts a source. It does nothing before begin, and after the end of r.ctx. The caller holds mu.
func (r *roster) start(s *scope) {
	if r.ctx == nil || r.ctx.Err() != nil {
		return
	}
	ctx := r.ctx
	if key, name := s.logged(); name != "" {
		ctx = klog.NewContext(ctx, klog.LoggerWithValues(klog.FromContext(ctx), key, name))
	}
	ctx, s.end = context.WithCancel(ctx)
	r.running.Store(s, nil)
	r.sources.Go(func() {
		defer r.running.Delete(s)
		defer s.end()
		if s.after != nil {
			select {
			case <-s.after:
			case <-ctx.Done():
				return
			}
		}
		s.run(ctx)
	})
}

// wait waits until r.ctx is done and all sources have returned.
func (r *roster) wait() {
	<-r.ctx.Done()
	r.mu.Lock()
	r.mu.Unlock() //nolint:staticcheck // nothing starts from now on
	r.sources.Wait()
}

// all returns the sources that were started and have not returned.
func (r *roster) all() (all []*scope) {
	r.running.Range(func(s, _ any) bool {
		all = append(all, s.(*scope))
		return true
	})
	return all
}

func (s *scope) health(informer string) SourceHealth {
	status := s.Status()
	if s.loose() {
		status.Failure = &source.Failure{Op: "list", Err: errLoose}
	}
	return SourceHealth{
		Namespace: s.namespace, Cluster: s.cluster.name(), Synced: s.listed.Load(), Watching: status.Watching, LastList: status.LastList, LastContact: status.LastContact,
		SourceError: watchError(informer, s.region, status.Failure), SourceFailures: status.Failures,
		SourceFailingSince: status.Since, SourceNextTry: status.NextTry, SourceWaiting: status.Waiting, WaitsForTurn: status.WaitsForTurn,
		Decoding: DecodingHealth{Objects: status.Decoding.Objects, Left: status.Decoding.Left, LeftBecause: status.Decoding.Because},
	}
}
