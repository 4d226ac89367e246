package valkey

import (
	"context"
	"errors"
	"math"
	"reflect"
	"strconv"
	"sync"
	"time"

	"github.com/valkey-io/valkey-go"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
)

// WatchWithContext opens a watch that begins after opts.ResourceVersion, which must be a version that
// a list or a watch has returned. It blocks for one request, for up to 10 seconds. It returns the
// error 400 if opts has no version, has a selector or asks for initial events, and 410 if the log
// lacks changes after the version. If the server cannot be read, or the store has no version now or an
// older one than the informer, it returns the error 429, or the error of ctx if ctx was cancelled.
//
// The watch ends after opts.TimeoutSeconds (0 or less means never), when ctx ends, when Stop is
// called, and on an error of the server. It ends with the error 410 if the log no longer has all
// changes. If opts allows bookmarks, the watch sends one when the store has reached a version without
// a change of the objects.
func (s *Source) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	if opts.LabelSelector != "" || opts.FieldSelector != "" {
		return nil, apierrors.NewBadRequest("valkey: a Source has no selectors: it watches all objects of the store")
	}
	if opts.SendInitialEvents != nil {
		return nil, apierrors.NewBadRequest("valkey: a Source cannot send the initial state: list it")
	}
	version := parseVersion(opts.ResourceVersion)
	if version == 0 {
		return nil, apierrors.NewBadRequest("valkey: a watch needs the version of a list, not " + strconv.Quote(opts.ResourceVersion))
	}
	h, err := s.look(ctx, "", "0-0", 1, s.writer())
	if err == nil {
		err = s.begins(h, version)
	}
	if err != nil {
		return nil, later(err)
	}
	f := &follower{
		source: s, log: h.log, session: h.session, at: id{version: version}, sent: version,
		bookmarks: opts.AllowWatchBookmarks, events: make(chan watch.Event),
	}
	f.ctx, f.cancel = context.WithCancel(ctx)
	f.timeout = longest
	if seconds := ptr.Deref(opts.TimeoutSeconds, 0); seconds > 0 && seconds < int64(longest/time.Second) {
		f.timeout = time.Duration(seconds) * time.Second
	}
	f.running.Go(f.run)
	return f, nil
}

// longest is the longest duration that a timer can have.
const longest time.Duration = math.MaxInt64

// later returns an error that makes an informer watch again from its version. After the error 503 it
// would list.
func later(err error) error {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) || errors.Is(err, context.Canceled) {
		return err
	}
	return apierrors.NewTooManyRequests("valkey: "+err.Error(), 1)
}

// begins returns nil if a watch can begin at a version: the store has a state and is not behind the informer, its log is
// the one of the informer's list, and the log has all changes after the version.
func (s *Source) begins(h head, version uint64) error {
	if err := h.ready(); err != nil {
		return err
	}
	if err := s.ahead(h); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.log != "" && h.log != s.log {
		return expired("the writer has listed again")
	}
	if err := h.holds(version); err != nil {
		return err
	}
	if s.log == "" { // an informer that continues from a version that it had in another process
		s.epoch, s.log, s.session, s.reached = h.epoch, h.log, h.session, version
	}
	return nil
}

type follower struct {
	source    *Source
	log       string
	session   string // the session that wrote what the watcher has
	at        id     // of the last entry that was sent
	sent      uint64 // the version that the watcher has
	bookmarks bool

	ctx     context.Context
	cancel  context.CancelFunc
	timeout time.Duration
	events  chan watch.Event
	running sync.WaitGroup
}

func (f *follower) ResultChan() <-chan watch.Event { return f.events }

// Stop ends the watch, and blocks until its goroutine has returned.
func (f *follower) Stop() {
	f.cancel()
	f.running.Wait()
}

// patienceForEntries is how long one request waits for entries. After that, the follower checks whether
// the log is still the same.
const patienceForEntries = 2 * time.Second

// run sends the entries of the log until the watch ends. An error of the server ends the watch. The
// next watch returns the reason.
func (f *follower) run() {
	defer close(f.events)
	defer f.cancel()
	defer time.AfterFunc(f.timeout, f.cancel).Stop()
	for {
		h, err := f.source.look(f.ctx, f.log, f.at.String(), pageEntries, f.session)
		switch {
		case err != nil:
			return
		case h.version == 0, h.log == f.log && h.version < f.sent: // the writer lists, or has to catch up
			if !f.pause() {
				return
			}
		case !f.follow(h):
			return
		case len(h.entries) < pageEntries && !f.wait():
			return
		}
	}
}

// follow sends the entries in h. It returns false if the watch is over.
func (f *follower) follow(h head) bool {
	switch {
	case h.log != f.log:
		return f.expire("the writer has listed again")
	case h.wentBack(f.sent):
		return f.expire("the server had lost changes, and has got them again")
	case h.gone(f.at):
		return f.expire("the log of the store does not have all changes any more")
	}
	f.session = h.session
	for _, e := range h.entries {
		if !f.sendEntry(e) {
			return false
		}
	}
	if len(h.entries) < pageEntries && h.version > f.sent {
		return f.bookmark(h.version)
	}
	return true
}

func (f *follower) sendEntry(e entry) bool {
	obj, err := f.source.decode(e.key, e.object)
	if err != nil {
		return f.fail(apierrors.NewInternalError(err))
	}
	kind := watch.Modified
	switch e.kind {
	case "add":
		kind = watch.Added
	case "delete":
		kind = watch.Deleted
		obj.(metav1.Object).SetResourceVersion(versionText(e.id.version))
	}
	f.at = e.id
	return f.send(watch.Event{Type: kind, Object: obj}, e.id.version)
}

func (f *follower) bookmark(version uint64) bool {
	if !f.bookmarks {
		return true
	}
	obj := reflect.New(f.source.codec.Type().Elem()).Interface().(runtime.Object)
	obj.(metav1.Object).SetResourceVersion(versionText(version))
	return f.send(watch.Event{Type: watch.Bookmark, Object: obj}, version)
}

func (f *follower) expire(reason string) bool { return f.fail(expired(reason)) }

func (f *follower) fail(err *apierrors.StatusError) bool {
	status := err.Status()
	f.send(watch.Event{Type: watch.Error, Object: &status}, 0)
	return false
}

// send sends an event that brings the watcher to a version. It returns false if the watch ends first.
func (f *follower) send(e watch.Event, version uint64) bool {
	select {
	case f.events <- e:
	case <-f.ctx.Done():
		return false
	}
	if version > f.sent {
		f.sent = version
		f.source.reach(f.log, f.session, version)
	}
	return true
}

func (s *Source) reach(log, session string, version uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.log == log {
		s.session, s.reached = session, max(s.reached, version)
	}
}

// pause waits before the follower looks at the writer's state again. It returns false if the watch has
// ended.
func (f *follower) pause() bool {
	select {
	case <-time.After(patienceForEntries):
		return true
	case <-f.ctx.Done():
		return false
	}
}

// wait blocks until the log may have more entries. It returns false if the watch is over, or if the
// server does not answer.
func (f *follower) wait() bool {
	// The client ignores the end of a ctx that has a deadline until a blocking command has returned.
	ctx, cancel := context.WithCancel(f.ctx)
	defer cancel()
	defer time.AfterFunc(patienceForEntries+patience, cancel).Stop()
	client := f.source.client
	err := do(ctx, client, client.B().Xread().Count(1).Block(patienceForEntries.Milliseconds()).
		Streams().Key(f.source.place.log).Id(f.at.String()).Build()).Error()
	return err == nil || valkey.IsValkeyNil(err)
}
