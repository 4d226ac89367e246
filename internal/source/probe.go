package source

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// probe asks the server for its current version, and returns an Expired error if that is older
// than version. Then the server was restored from a backup. It would accept a watch from version
// and stay silent until it reaches that version again, and so would a list that must be at least
// as new.
//
// Some servers refuse such a request with BadRequest or Invalid, such as a relay that does not
// know the newest state. probe then trusts the server, as client-go trusts every server.
func (c *client) probe(ctx context.Context, version string) error {
	_, now, err := c.list(ctx, metav1.ListOptions{Limit: 1}, func(string, bool) error { return nil })
	switch {
	case isMisunderstood(err):
		c.trust.confirm()
		return nil
	case err != nil:
		return err
	case isAnyVersion(now) && compares(version):
		return errors.New("the answer for one object has no resourceVersion")
	}
	order, err := resourceversion.CompareResourceVersion(now, version)
	if err == nil && order < 0 {
		c.trust.state.Store(wentBack)
		return apierrors.NewResourceExpired(fmt.Sprintf("the server is at resourceVersion %s, before %s", now, version))
	}
	c.trust.confirm()
	if err != nil {
		return apierrors.NewResourceExpired(fmt.Sprintf("versions %q and %q cannot be compared: %v", now, version, err))
	}
	return nil
}

// probeIfSuspect probes the server before a request from version, if a request has failed since
// the server was last trusted. If the server refuses a second probe, the error makes the reflector list.
func (c *client) probeIfSuspect(ctx context.Context, version string) error {
	if isAnyVersion(version) || !c.trust.is(suspect) {
		return nil
	}
	err := c.probe(ctx, version)
	switch {
	case err == nil || isExpired(err) || mayPass(err):
		return err
	case c.trust.unprobed == 0:
		c.trust.unprobed++
		return err
	}
	c.trust.unnamed.Store(true) // probes do not work, but a list may
	return apierrors.NewResourceExpired(fmt.Sprintf("asking for one object: %v", err))
}

// prepareList waits for a turn and adjusts the options of the request. For a further page it does
// nothing.
func (c *client) prepareList(ctx context.Context, opts *metav1.ListOptions) error {
	if opts.Continue != "" {
		return nil
	}
	if !c.enter(ownWork) {
		return context.Canceled
	}
	err := c.turn.take(ctx, c.opts.Lists())
	c.calls.leave(ownWork)
	if err != nil {
		return err
	}
	return c.askForNewest(ctx, opts)
}

// askForNewest makes a list ask for the newest state if the server went back in time. A list that
// must be at least as new as a lost version would block until the server reaches that version
// again.
//
// A list in pages asks for the newest state too. Otherwise the API server answers the first such
// list in one piece and, after a restart of the server, with a state that is too old for a watch.
// A list also asks for the newest state after a list in parts was given up: client-go does not
// know which version the sink has seen, and another API server may be behind it.
func (c *client) askForNewest(ctx context.Context, opts *metav1.ListOptions) error {
	if !c.trust.unnamed.Load() {
		if err := c.probeIfSuspect(ctx, opts.ResourceVersion); err != nil && !isExpired(err) {
			return err
		}
	}
	newest, whole := c.parts.request()
	paged := c.opts.PageSize > 0 && opts.SendInitialEvents == nil
	if whole && opts.SendInitialEvents == nil {
		opts.Limit = 0
	}
	if paged || newest || c.trust.unnamed.Load() || c.trust.is(wentBack) {
		opts.ResourceVersion = ""
		if opts.SendInitialEvents == nil {
			opts.ResourceVersionMatch = ""
		}
	}
	return nil
}
