package relay

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
)

// find asks the API server for the resources of Options.Names until it has found all of them, or ctx
// ends, with pauses that grow from 1 s to at most 30 s. It serves each resource that it finds, and calls begin for it.
func (r *Relay) find(ctx context.Context, begin func(*served)) {
	backoff := wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.2, Steps: 6, Cap: 25 * time.Second}
	pause := time.Duration(0)
	for names := r.names(); len(names) > 0; names, pause = r.names(), backoff.Step() {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		found, errs := lookup(ctx, r.opts.Upstream, names)
		for i, name := range names {
			if errs[i] == nil {
				errs[i] = r.serveFound(ctx, name, found[i], begin)
			}
			if errs[i] != nil && ctx.Err() == nil {
				r.note(ctx, name, errs[i])
			}
		}
	}
}

// names returns the names that are not served yet.
func (r *Relay) names() (all []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range r.opts.Names {
		if _, unknown := r.unknown[name]; unknown {
			all = append(all, name)
		}
	}
	return all
}

// note keeps the reason why a name is not served, and logs it if it has changed.
func (r *Relay) note(ctx context.Context, name string, reason error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if before := r.unknown[name]; before == nil || before.Error() != reason.Error() {
		klog.FromContext(ctx).Error(reason, "The relay cannot serve a resource yet, and tries again", "resource", name)
	}
	r.unknown[name] = reason
}

// serveFound serves a resource, unless it is served already under another name.
func (r *Relay) serveFound(ctx context.Context, name string, resource Resource, begin func(*served)) error {
	for _, s := range r.all() {
		if s.GroupVersionResource == resource.GroupVersionResource { // under another of Options.Names, or in Options.Resources
			r.mu.Lock()
			defer r.mu.Unlock()
			delete(r.unknown, name)
			return nil
		}
	}
	if r.opts.Prepare != nil {
		if err := r.opts.Prepare(ctx, &resource); err != nil {
			return err
		}
	}
	s, offered, err := r.make(resource)
	if err != nil {
		return err
	}
	if err := r.server.Add(offered); err != nil {
		s.feed.Close()
		return err
	}
	r.mu.Lock()
	r.served = append(r.served, s)
	delete(r.unknown, name)
	r.mu.Unlock()
	begin(s)
	return nil
}

// whyUnknown returns the error for reads of a resource that is not served, or nil if the resource does
// not exist.
func (r *Relay) whyUnknown(resource schema.GroupResource) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, reason := range r.unknown {
		withVersion, group := schema.ParseResourceArg(name)
		if group != resource && (withVersion == nil || withVersion.GroupResource() != resource) {
			continue
		}
		if meta.IsNoMatchError(reason) {
			return nil
		}
		return notFound(name, reason)
	}
	return nil
}

func notFound(name string, reason error) error {
	if reason == nil {
		reason = errors.New("the API server has not described it yet")
	}
	return unavailable(name, reason)
}
