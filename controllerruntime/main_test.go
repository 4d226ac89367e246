package controllerruntime_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"go.uber.org/goleak"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
)

// managerLog collects the log lines of all managers. They share one logger, which can be set
// only once.
var managerLog lines

func TestMain(m *testing.M) {
	log.SetLogger(funcr.New(managerLog.add, funcr.Options{Verbosity: 2}))
	goleak.VerifyTestMain(m)
}

type lines struct {
	mu   sync.Mutex // protects text
	text strings.Builder
}

func (l *lines) add(_, line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.WriteString(line + "\n")
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// patience limits how long a test waits for something that must happen.
const patience = 5 * time.Minute

// follow runs an informer over a source for the length of the test, and returns a channel of
// the events of its watcher.
func follow[T informer.Object](t *testing.T, lw cache.ListerWatcher) (*informer.CustomCacheInformer[T], <-chan informer.Event[T]) {
	t.Helper()
	inf, err := informer.NewFrom(lw, informer.Options[T]{
		ErrorHandler: func(_ context.Context, err error) { t.Errorf("reported: %v", err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	events := make(chan informer.Event[T], 1000)
	_, err = inf.AddWatcher(informer.WatcherFunc[T](func(_ context.Context, e informer.Event[T]) error {
		events <- e
		return nil
	}), informer.WatcherOptions{})
	if err != nil {
		t.Fatal(err)
	}
	informertest.Run(t, inf)
	return inf, events
}

// want fails the test unless the next event has this type and object name. It returns the
// event's object.
func want[T informer.Object](t *testing.T, events <-chan informer.Event[T], kind informer.EventType, name string) (obj T) {
	t.Helper()
	select {
	case e := <-events:
		if e.Type != kind || e.Key().Name != name {
			t.Fatalf("got %v of %v, want %v of %s", e.Type, e.Key(), kind, name)
		}
		return e.Object()
	case <-time.After(patience):
		t.Fatalf("no event came, want %v of %s", kind, name)
	}
	return obj
}

// ok fails the test if err is not nil.
func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
