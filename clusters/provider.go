package clusters

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/channel"
	"github.com/customcacheinformer/informer/internal/object"
	"github.com/customcacheinformer/informer/store"
)

// Options are the options of [New]. The zero value is ready to use.
type Options struct {
	// Name is the name of the provider in a group, in errors and in Health. Defaults to "clusters".
	Name string
	// Allow permits parts of kubeconfigs that would otherwise be refused. Defaults to none.
	Allow Allow
	// UID returns the identity of the cluster that config leads to. It may change config. It must return when its ctx
	// ends, which is after 10 s at the latest. An error that is Forbidden or NotFound, see
	// [k8s.io/apimachinery/pkg/api/errors], means that the cluster answers but does not show its identity. Any other
	// error means that the cluster does not answer. Several goroutines may call UID at once. Defaults to
	// [store.ClusterUID], the UID of the namespace kube-system.
	UID func(ctx context.Context, config *rest.Config) (types.UID, error)
	// ErrorHandler is called when a kubeconfig is refused, a changed kubeconfig leads to an address that does not answer,
	// a follower returns an error, or the kubeconfigs cannot be read. Several goroutines may call it at once. Defaults to
	// [informer.Report].
	ErrorHandler func(ctx context.Context, err error)
}

// Source is where the kubeconfigs come from. It is a [Secrets] or a [Directory].
type Source interface {
	// open checks the source, and returns a feed that updates s.
	open(name string, s *set, report func(context.Context, error)) (feed, error)
}

type feed interface {
	Run(ctx context.Context) error
	synced() <-chan struct{} // closed when the followers were called for the first set
	trouble() error          // why kubeconfigs cannot be read now
}

// Provider passes the clusters of a [Source] to followers. [New] makes one. It is an [informer.Member]. Its methods
// may be called from any goroutine, and do not block, except Run and WaitForSync. It must not be copied.
type Provider struct {
	name             string
	set              set
	feed             feed
	hasRun           atomic.Bool
	started, stopped chan struct{}
}

// New returns a provider that calls followers for each cluster of source. It makes no request and reads no file; Run
// does. It returns an error if source or a follower is nil, if there is no follower, or if a field of source is invalid
// or a required one is empty.
func New(source Source, opts Options, followers ...Follower) (*Provider, error) {
	p := &Provider{name: cmp.Or(opts.Name, "clusters"), started: make(chan struct{}), stopped: make(chan struct{})}
	p.set.followers, p.set.allow, p.set.uid = slices.Clone(followers), opts.Allow, opts.UID
	p.set.reads, p.set.clusters = make(chan struct{}, maxReads), map[string]*cluster{}
	if p.set.uid == nil {
		p.set.uid = systemUID
	}
	report := opts.ErrorHandler
	if report == nil {
		report = informer.Report
	}
	isNil := func(f Follower) bool { return object.IsNil(f) }
	err := errors.New("the source or a follower is nil, or there is no follower")
	if !object.IsNil(source) && len(followers) > 0 && !slices.ContainsFunc(followers, isNil) {
		p.feed, err = source.open(p.name, &p.set, report)
	}
	if err != nil {
		return nil, fmt.Errorf("clusters: New: %w", err)
	}
	return p, nil
}

func systemUID(ctx context.Context, config *rest.Config) (types.UID, error) {
	config.WarningHandlerWithContext = rest.NoWarnings{} // a cluster must not write into the log
	client, err := corev1client.NewForConfig(config)
	if err != nil {
		return "", err
	}
	uid, err := store.ClusterUID(ctx, client.Namespaces())
	return types.UID(uid), err
}

// Name returns Options.Name, or "clusters" if it is empty.
func (p *Provider) Name() string { return p.name }

// StopsFirst returns true, so that a group stops the provider before its followers. So no follower is called after it
// has stopped.
func (p *Provider) StopsFirst() bool { return true }

// Run follows the source until ctx ends. It disengages no cluster at the end, and returns nil. A second Run returns
// at once an error that wraps [informer.ErrAlreadyRun].
func (p *Provider) Run(ctx context.Context) error {
	if !p.hasRun.CompareAndSwap(false, true) {
		return fmt.Errorf("clusters %s: %w", p.name, informer.ErrAlreadyRun)
	}
	defer p.set.background.Wait()
	defer close(p.stopped)
	p.set.ctx = ctx
	close(p.started)
	p.set.background.Go(func() {
		select {
		case <-p.feed.synced():
			p.set.settle()
		case <-ctx.Done():
		}
	})
	return p.feed.Run(ctx)
}

// WaitForSync blocks until the provider has called all followers for each cluster that the source had at first. The
// provider also syncs if a kubeconfig is refused or a follower returns an error. If ctx or Run ends first, WaitForSync
// returns an [*informer.SyncError] that wraps the error of ctx or [informer.ErrStopped]. It may be called before Run.
func (p *Provider) WaitForSync(ctx context.Context) error {
	err := informer.ErrStopped
	select {
	case <-p.feed.synced():
	case <-p.stopped:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if channel.Closed(p.feed.synced()) {
		return nil
	}
	late := []string{"the first set of clusters"}
	if !channel.Closed(p.started) {
		late = append(late, "Run")
	}
	return &informer.SyncError{Informer: p.name, Late: late, Reason: p.feed.trouble(), Err: err}
}

// Health is the state of a [Provider] at one moment. [Provider.MemberHealth] returns it as a value, not as a pointer.
type Health struct {
	Name        string          `json:"name"`                  // Options.Name
	Started     bool            `json:"started"`               // Run was called
	Stopped     bool            `json:"stopped"`               // Run has returned
	Synced      bool            `json:"synced"`                // see Provider.WaitForSync
	SourceError string          `json:"sourceError,omitempty"` // why the Secrets or the directory cannot be read now
	Clusters    []ClusterHealth `json:"clusters"`              // sorted by name
}

// ClusterHealth is the state of one cluster in a [Health]. A cluster is listed while the source has it, or while a
// follower must still disengage it.
type ClusterHealth struct {
	Name      string    `json:"name"`                // of the Secret, or of the file without its extension
	Engaged   bool      `json:"engaged"`             // whether a kubeconfig is in use
	UID       types.UID `json:"uid,omitempty"`       // the UID that followers get
	SystemUID types.UID `json:"systemUID,omitempty"` // what Options.UID has returned; "" if unknown
	Refused   string    `json:"refused,omitempty"`   // why the present kubeconfig is not used; if Engaged, an earlier one is still in use
	Failed    string    `json:"failed,omitempty"`    // the errors of followers, or of a new address that does not answer
}

// MemberHealth returns the state of the provider, a [Health]. It does not block.
func (p *Provider) MemberHealth() informer.MemberHealth {
	h := Health{
		Name: p.name, Started: channel.Closed(p.started), Stopped: channel.Closed(p.stopped),
		Synced: channel.Closed(p.feed.synced()), SourceError: text(p.feed.trouble()), Clusters: []ClusterHealth{},
	}
	p.set.mu.Lock()
	defer p.set.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(p.set.clusters)) {
		c := p.set.clusters[name]
		one := ClusterHealth{Name: name, SystemUID: c.system, Refused: text(c.bad), Failed: text(c.failed)}
		if c.current != nil {
			one.Engaged, one.UID = true, c.current.uid
		}
		h.Clusters = append(h.Clusters, one)
	}
	return h
}

// HasRun reports whether Run was called. It returns Started.
func (h Health) HasRun() bool { return h.Started }

// Ready returns nil once the provider has synced, whatever the states of its clusters are. Before that, it returns an
// error with SourceError, if there is one. Once Run has returned, the error wraps [informer.ErrStopped].
func (h Health) Ready() error {
	switch {
	case h.Stopped:
		return fmt.Errorf("clusters %s: %w", h.Name, informer.ErrStopped)
	case !h.Started:
		return fmt.Errorf("clusters %s: has not started", h.Name)
	case !h.Synced:
		return fmt.Errorf("clusters %s: has not synced: %s", h.Name, cmp.Or(h.SourceError, "the first set is not complete"))
	}
	return nil
}

// Live always returns nil, because a restart does not help a provider.
func (h Health) Live() error { return nil }
