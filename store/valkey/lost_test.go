package valkey_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/sample"
	"github.com/customcacheinformer/informer/store"
	"github.com/customcacheinformer/informer/store/valkey"
	"github.com/customcacheinformer/informer/store/valkey/internal/server"
)

// filled returns a store with two objects, a tombstone and a log.
func filled(t *testing.T, srv *server.Server, identity store.Identity) *valkey.Store {
	t.Helper()
	s := open(t, srv.Client(), sample.ConfigMap("", ""), valkey.Options{Identity: identity})
	b, c := at(sample.ConfigMap("a", "b"), "5"), at(sample.ConfigMap("a", "c"), "6")
	must(t, put(s, "a", "4"))
	must(t, s.Apply(t.Context(), []informer.Change{adding(b), adding(c)}, "6"))
	must(t, s.Apply(t.Context(), []informer.Change{deleting(c)}, "7"))
	return s
}

// wantUnavailable fails the test unless a Source answers that it cannot list, or watch from a version, now.
func wantUnavailable(t *testing.T, source *valkey.Source, version string) {
	t.Helper()
	if list, err := source.ListWithContext(t.Context(), metav1.ListOptions{}); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("a list: %v, %v, want 503", list, err)
	}
	if _, err := source.WatchWithContext(t.Context(), metav1.ListOptions{ResourceVersion: version}); !apierrors.IsTooManyRequests(err) {
		t.Errorf("a watch: %v, want 429", err)
	}
}

func TestAMissingPartIsAnError(t *testing.T) {
	srv := server.Start(t)
	for _, part := range []string{"about", "objects", "keys", "tombstones", "log", "all"} {
		t.Run(part, func(t *testing.T) {
			for op, call := range map[string]func(*valkey.Store) error{
				"Apply":      func(s *valkey.Store) error { return put(s, "d", "8") },
				"Forget":     func(s *valkey.Store) error { return s.Forget(t.Context(), nil) },
				"Get":        func(s *valkey.Store) error { _, _, err := s.Get(t.Context(), "a/b"); return err },
				"Scan":       func(s *valkey.Store) error { _, err := s.Scan(t.Context(), "", 10); return err },
				"Resume":     func(s *valkey.Store) error { _, err := s.Resume(t.Context()); return err },
				"Tombstones": func(s *valkey.Store) error { _, err := s.Tombstones(t.Context()); return err },
			} {
				srv.Do("FLUSHALL")
				identity := newIdentity()
				s, source := filled(t, srv, identity), newSource(t, srv.Client(), identity)
				wantListed(t, source, 2)
				lose(srv, part)
				if err := call(s); !errors.Is(err, valkey.ErrLost) || !errors.Is(s.Err(), valkey.ErrLost) {
					t.Errorf("%s: %v, %v, want %v", op, err, s.Err(), valkey.ErrLost)
				}
				wantUnavailable(t, source, "7")

				var reported []error
				s = open(t, srv.Client(), sample.ConfigMap("", ""), valkey.Options{Identity: identity, ErrorHandler: func(err error) { reported = append(reported, err) }})
				wantUnavailable(t, source, "7") // the store is empty, and no writer has listed
				missing := (*valkey.MissingError)(nil)
				if told := len(reported) == 1 && errors.As(reported[0], &missing); told != (part != "about" && part != "all") {
					t.Errorf("reported: %v", reported)
				} else if told && missing.Part != part {
					t.Errorf("reported: %v, want %s", missing, part)
				}
				if rv, err := s.Resume(t.Context()); rv != "" || err != nil || len(stored(t, s)) > 0 {
					t.Errorf("the store begins with bookmark %q, %v, and objects", rv, err)
				}
				must(t, s.Apply(t.Context(), []informer.Change{adding(at(sample.ConfigMap("a", "a"), "4"))}, "9"))
				wantListed(t, source, 1)
			}
		})
	}
}

// lose removes a part of the only store on the server.
func lose(srv *server.Server, part string) {
	if part == "all" {
		srv.Do("FLUSHALL")
		return
	}
	for _, key := range strings.Fields(strings.Trim(srv.Do("KEYS", "*:"+part), "[]")) {
		srv.Do("DEL", key)
	}
}

func TestAFullMemoryIsReportedAndHeals(t *testing.T) {
	srv := server.Start(t, "--maxmemory", "20mb", "--maxmemory-policy", "noeviction")
	s := open(t, srv.Client(), sample.ConfigMap("", ""), valkey.Options{Identity: newIdentity()})
	big := func(name string) informer.Change {
		obj := at(sample.ConfigMap("a", name), "5")
		obj.SetAnnotations(map[string]string{"a": strings.Repeat("a", 1<<20)})
		return adding(obj)
	}
	done := 0
	var full error
	var batch []informer.Change
	for n := 0; full == nil && n < 100; n++ {
		// The delete comes first, because a server with a full memory removes before it refuses.
		batch = []informer.Change{deleting(at(sample.ConfigMap("a", "none"), "1")), big("x" + text(uint64(n))), big("y" + text(uint64(n)))}
		if full = s.Apply(t.Context(), batch, text(uint64(100+n))); full == nil {
			done += 2
		}
	}
	if full == nil || !strings.Contains(full.Error(), "OOM") || s.Err() != nil {
		t.Fatalf("%d objects of 1 MiB are stored in 20 MiB: %v, %v", done, full, s.Err())
	}
	rv, err := s.Resume(t.Context())
	if err != nil || len(stored(t, s)) != done || rv != text(uint64(99+done/2)) {
		t.Errorf("after a write that was refused: %d objects at %s, want %d, %v", len(stored(t, s)), rv, done, err)
	}
	srv.Do("CONFIG", "SET", "maxmemory", "0")
	if err := s.Apply(t.Context(), batch, "200"); err != nil || len(stored(t, s)) != done+2 {
		t.Errorf("with more memory: %v, %d objects", err, len(stored(t, s)))
	}
}

func TestAServerThatMayEvictAnyKeyIsRefused(t *testing.T) {
	srv := server.Start(t, "--maxmemory-policy", "allkeys-lru")
	try := func(c *server.Server) error {
		_, err := valkey.Open(t.Context(), c.Client(), sample.ConfigMap("", "").(runtime.Object), valkey.Options{Identity: newIdentity()})
		return err
	}
	if err := try(srv); err == nil || !strings.Contains(err.Error(), "allkeys-lru") {
		t.Errorf("%v, want an error that names the policy", err)
	}
	srv.Do("CONFIG", "SET", "maxmemory-policy", "volatile-lru")
	if err := try(srv); err != nil {
		t.Errorf("with a policy that evicts no key of a store: %v", err)
	}
	if err := try(server.Start(t, "--rename-command", "CONFIG", "")); err != nil {
		t.Errorf("a server that does not tell its configuration: %v", err)
	}
}

// A replica that is behind knows neither the last writes nor who has made them.
func TestAfterAFailoverToAServerThatWasBehindNothingIsTakenForDeleted(t *testing.T) {
	first, second := server.Start(t), server.Start(t)
	proxy := server.NewProxy(t, first)
	host, port, _ := strings.Cut(first.Addr(), ":")
	second.Do("REPLICAOF", host, port)
	identity := newIdentity()
	through := first.ClientAt(proxy.Addr())
	s := open(t, through, sample.ConfigMap("", ""), valkey.Options{Identity: identity, Token: 3})
	source := newSource(t, through, identity)
	must(t, errors.Join(put(s, "a", "4"), put(s, "b", "5"), put(s, "x", "6"), put(s, "y", "7")))
	first.Do("WAIT", "1", "10000")
	second.Do("REPLICAOF", "NO", "ONE") // what follows does not reach it
	wantListed(t, source, 4)
	following, err := source.WatchWithContext(t.Context(), metav1.ListOptions{ResourceVersion: "7", AllowWatchBookmarks: true})
	must(t, err)
	defer following.Stop()
	remove := func(s *valkey.Store, version string, names ...string) error {
		var changes []informer.Change
		for _, name := range names {
			changes = append(changes, deleting(at(sample.ConfigMap("a", name), "7")))
		}
		return s.Apply(t.Context(), changes, version)
	}
	// The id of a delete begins with the version before it, here 8.
	must(t, errors.Join(s.Apply(t.Context(), nil, "8"), remove(s, "9", "x")))
	for e := range following.ResultChan() {
		if e.Type == watch.Bookmark && e.Object.(metav1.Object).GetResourceVersion() == "9" {
			break
		}
	}
	proxy.Cut()
	first.Kill()
	proxy.Lead(second)
	wantUnavailable(t, source, "9") // because the server is behind
	if obj, _, err := s.Get(t.Context(), "a/a"); !errors.Is(err, valkey.ErrLost) {
		t.Errorf("a read of the writer from a server that is behind: %v, %v, want %v", obj, err, valkey.ErrLost)
	}
	if err := put(s, "d", "10"); !errors.Is(err, valkey.ErrLost) {
		t.Errorf("a write to a server that is behind: %v, want %v", err, valkey.ErrLost)
	}
	next := open(t, through, sample.ConfigMap("", ""), valkey.Options{Identity: identity, Token: 3})
	if rv, err := next.Resume(t.Context()); rv != "7" || err != nil {
		t.Errorf("the next writer goes on from %q, %v", rv, err)
	}
	// The delete of y has the id that that of x had before.
	must(t, remove(next, "10", "y", "x"))
	for e := range following.ResultChan() { // may be closed because connections were cut
		if e.Type != watch.Error || !apierrors.IsResourceExpired(apierrors.FromObject(e.Object)) {
			t.Errorf("an open watch goes on with %v", e)
		}
	}
	if _, err := source.WatchWithContext(t.Context(), metav1.ListOptions{ResourceVersion: "9"}); !apierrors.IsResourceExpired(err) {
		t.Errorf("a watch from a version that the server had lost: %v, want 410", err)
	}
	if _, err := source.ListWithContext(t.Context(), metav1.ListOptions{ResourceVersion: "9", Limit: 1}); !apierrors.IsResourceExpired(err) {
		t.Errorf("a probe of a version that the server had lost: %v, want 410", err)
	}
	if version := wantListed(t, source, 2); version != "10" {
		t.Errorf("the list has version %s", version)
	}
}

// A takeover of a server that has lost nothing is not a reason to list, however often it happens.
func TestAReaderOfAnOldVersionKnowsWhereTheLogBegan(t *testing.T) {
	srv := server.Start(t)
	identity := newIdentity()
	example := sample.ConfigMap("", "")
	s := open(t, srv.Client(), example, valkey.Options{Identity: identity})
	listed := newSource(t, srv.Client(), identity)
	must(t, s.Apply(t.Context(), nil, "50"))
	must(t, s.Apply(t.Context(), nil, "")) // the writer lists again
	must(t, s.Apply(t.Context(), []informer.Change{adding(at(sample.ConfigMap("a", "a"), "150"))}, "200"))
	wantListed(t, listed, 1)
	for n := range 3 {
		s = open(t, srv.Client(), example, valkey.Options{Identity: identity})
		must(t, put(s, "b", text(uint64(210+n))))
	}
	fresh := newSource(t, srv.Client(), identity)
	if _, err := fresh.WatchWithContext(t.Context(), metav1.ListOptions{ResourceVersion: "60"}); !apierrors.IsResourceExpired(err) {
		t.Errorf("a watch from before the log: %v, want 410", err)
	}
	w, err := listed.WatchWithContext(t.Context(), metav1.ListOptions{ResourceVersion: "200"})
	if err != nil {
		t.Fatalf("a watch of a reader that has listed, after three takeovers: %v", err)
	}
	w.Stop()
	for range 64 { // more than the server keeps
		open(t, srv.Client(), example, valkey.Options{Identity: identity})
	}
	if _, err := listed.WatchWithContext(t.Context(), metav1.ListOptions{ResourceVersion: "200"}); !apierrors.IsResourceExpired(err) {
		t.Errorf("a watch after more takeovers than the server remembers: %v, want 410", err)
	}
}

func TestAWriteThatFailsInTheMiddleIsNotTakenForDone(t *testing.T) {
	srv := server.Start(t)
	identity := newIdentity()
	s := open(t, srv.Client(), sample.ConfigMap("", ""), valkey.Options{Identity: identity})
	srv.Do("ACL", "SETUSER", "default", "-zadd")
	batch := []informer.Change{adding(at(sample.ConfigMap("a", "a"), "5"))}
	if err := s.Apply(t.Context(), batch, "5"); err == nil {
		t.Fatal("a write without the right to one of its commands is no error")
	}
	srv.Do("ACL", "SETUSER", "default", "+zadd")
	if err := s.Apply(t.Context(), batch, "5"); !errors.Is(err, valkey.ErrLost) {
		t.Errorf("the write again: %v, want %v", err, valkey.ErrLost)
	}
	var missing *valkey.MissingError
	next := open(t, srv.Client(), sample.ConfigMap("", ""), valkey.Options{
		Identity: identity, ErrorHandler: func(err error) { errors.As(err, &missing) },
	})
	if missing == nil || missing.Part != "changes" {
		t.Errorf("reported: %v", missing)
	}
	if err := next.Apply(t.Context(), batch, "5"); err != nil || len(stored(t, next)) != 1 {
		t.Errorf("in the next store: %v, %v", err, stored(t, next))
	}
}

func TestAWatchEndsWhileTheServerHangs(t *testing.T) {
	srv := server.Start(t)
	identity := newIdentity()
	s := open(t, srv.Client(), sample.ConfigMap("", ""), valkey.Options{Identity: identity})
	must(t, s.Apply(t.Context(), nil, "5"))
	source := newSource(t, srv.Client(), identity)
	for name, seconds := range map[string]*int64{"a watch without a timeout": nil, "a watch with one": new(int64(600))} {
		w, err := source.WatchWithContext(t.Context(), metav1.ListOptions{ResourceVersion: "5", TimeoutSeconds: seconds})
		must(t, err)
		srv.Pause()
		begun := time.Now()
		w.Stop()
		// The hang would last for ten minutes.
		if took := time.Since(begun); took > time.Minute {
			t.Errorf("%s was stopped after %v", name, took)
		}
		srv.Resume()
	}
}

func TestRunEndsWhenAnotherStoreWrites(t *testing.T) {
	srv := server.Start(t)
	identity := newIdentity()
	s := open(t, srv.Client(), sample.ConfigMap("", ""), valkey.Options{Identity: identity})
	if err := s.Run(t.Context(), func(ctx context.Context) error { return ctx.Err() }); err != nil {
		t.Errorf("a run that ends by itself: %v", err)
	}
	err := s.Run(t.Context(), func(ctx context.Context) error {
		open(t, srv.Client(), sample.ConfigMap("", ""), valkey.Options{Identity: identity, Writer: "the next"})
		if err := add(s, sample.ConfigMap("a", "a")); !errors.Is(err, valkey.ErrFenced) || !strings.Contains(err.Error(), "the next") {
			t.Errorf("a write: %v", err)
		}
		<-ctx.Done()
		return nil
	})
	if !errors.Is(err, valkey.ErrFenced) {
		t.Errorf("Run returns %v", err)
	}
	called := false
	err = s.Run(t.Context(), func(ctx context.Context) error { called = true; return ctx.Err() })
	if !errors.Is(err, valkey.ErrFenced) || !called {
		t.Errorf("a run after the end: %v", err)
	}
}
