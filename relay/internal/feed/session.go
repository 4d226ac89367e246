package feed

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/version"
)

// session is one watch of the watch cache. It collects the objects that the informer delivers until
// they are an exact state. Then it sends them, and every later change.
type session struct {
	feed   *Feed
	events chan watch.Event
	ctx    context.Context // ends when the watch cache reads no more
	stop   context.CancelFunc

	// The watcher's goroutine uses the rest.
	inherited bool                                        // the state may be that of the last process
	state     map[types.NamespacedName]informer.AnyObject // nil once it is sent
	version   uint64                                      // of the last event that was sent
	over      bool
}

func newSession(f *Feed, inherited bool) *session {
	s := &session{feed: f, events: make(chan watch.Event), inherited: inherited, state: map[types.NamespacedName]informer.AnyObject{}}
	s.ctx, s.stop = context.WithCancel(f.open)
	return s
}

// follow waits until the watch cache or the informer has ended the session, and closes the channel
// of events.
func (s *session) follow(reg *informer.Registration) {
	select {
	case <-s.ctx.Done():
		reg.Remove()
	case <-reg.Stopped():
	}
	<-reg.Stopped()
	s.stop()
	close(s.events)
}

func (s *session) ResultChan() <-chan watch.Event { return s.events }

// Stop ends the session. It does not block.
func (s *session) Stop() { s.stop() }

func (s *session) take(ctx context.Context, e informer.Event[informer.AnyObject]) error {
	switch {
	case s.over:
	case s.state == nil:
		s.change(ctx, e)
	case e.Type == informer.EventDeleted:
		delete(s.state, e.Key())
	default:
		s.state[e.Key()] = e.New
	}
	return nil
}

func (s *session) change(ctx context.Context, e informer.Event[informer.AnyObject]) {
	kinds := map[informer.EventType]watch.EventType{
		informer.EventAdded: watch.Added, informer.EventUpdated: watch.Modified, informer.EventDeleted: watch.Deleted,
	}
	version, err := s.feed.versioner.ObjectResourceVersion(e.Object())
	if err != nil || version <= s.version {
		s.fail(ctx, "the versions of the API server are not in order")
		return
	}
	if s.send(ctx, watch.Event{Type: kinds[e.Type], Object: e.Object()}) {
		s.version = version
	}
}

type follower struct {
	informer.WatcherFunc[informer.AnyObject]
	session *session
}

// OnVersion records that everything up to version v has been delivered. If v is "", the state is not
// exact.
func (f follower) OnVersion(ctx context.Context, v version.Exact) {
	s, text := f.session, string(v)
	if s.over {
		return
	}
	sent := s.state == nil
	if text == "" {
		if sent {
			s.fail(ctx, "the relay lists again")
		}
		return
	}
	version, err := s.feed.versioner.ParseResourceVersion(text)
	switch {
	case err != nil:
		s.fail(ctx, err.Error())
	case !sent && s.confirmed(ctx, text):
		s.sendState(ctx, version)
	case sent && version > s.version:
		s.bookmark(ctx, version, nil)
	}
}

// confirmed reports whether the source has had the state of this version in this process. The first
// state of an informer with a Durable is that of the last process. It counts only if the source
// continues from there, because the API server may have been restored from a backup.
func (s *session) confirmed(ctx context.Context, version string) bool {
	if !s.inherited {
		return true
	}
	s.inherited = false
	select {
	case <-s.feed.inf.Synced():
		return s.feed.inf.Versions()[0].Listed == version
	case <-s.ctx.Done():
	case <-ctx.Done():
	}
	return false
}

func (s *session) sendState(ctx context.Context, version uint64) {
	for _, obj := range s.state {
		if !s.send(ctx, watch.Event{Type: watch.Added, Object: obj}) {
			return
		}
	}
	s.state = nil
	s.bookmark(ctx, version, map[string]string{metav1.InitialEventsAnnotationKey: "true"})
}

func (s *session) bookmark(ctx context.Context, version uint64, annotations map[string]string) {
	obj := s.feed.newObject()
	obj.(metav1.Object).SetAnnotations(annotations)
	if err := s.feed.versioner.UpdateObject(obj, version); err != nil {
		s.fail(ctx, err.Error())
		return
	}
	if s.send(ctx, watch.Event{Type: watch.Bookmark, Object: obj}) {
		s.version = version
	}
}

// fail sends a 410 Expired, which makes the watch cache begin again, and ends the session.
func (s *session) fail(ctx context.Context, reason string) {
	status := apierrors.NewResourceExpired(reason).Status()
	s.send(ctx, watch.Event{Type: watch.Error, Object: &status})
	s.over = true
	s.Stop()
}

// send sends an event. It returns false if the session ends first.
func (s *session) send(ctx context.Context, e watch.Event) bool {
	select {
	case s.events <- e:
		return true
	case <-s.ctx.Done():
	case <-ctx.Done():
	}
	s.over = true
	return false
}
