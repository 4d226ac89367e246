package model_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
)

func TestMain(m *testing.M) { informertest.Main(m) }

// Short names of the helpers that the test packages share.
type (
	ci        = testkit.Informer
	configMap = testkit.ConfigMap
	durable   = testkit.Durable
	errorLog  = testkit.ErrorLog
	event     = testkit.Event
	options   = testkit.Options
	recorder  = testkit.Recorder
	source    = testkit.Source
)

const hour = testkit.Hour

var (
	asked       = testkit.Asked
	keyOf       = testkit.KeyOf
	object      = testkit.Object
	sleepBubble = testkit.SleepBubble
)

// report is what has happened in a sequence or a history, and what is wrong.
type report struct {
	loud bool     // print each line at once, because the next operation may panic
	said []string // what has happened

	mu       sync.Mutex // protects problems
	problems []string
}

// say adds a line to the report.
func (r *report) say(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	r.said = append(r.said, line)
	if r.loud {
		fmt.Println(line)
	}
}

// problem notes that something is wrong. It may be called from any goroutine.
func (r *report) problem(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.problems) < 20 {
		r.problems = append(r.problems, fmt.Sprintf(format, args...))
	}
}

func (r *report) broken() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.problems) > 0
}

// objectAt returns an object with this key.
func objectAt(key types.NamespacedName, value string) configMap {
	obj := object(key.Name, value)
	obj.Namespace = key.Namespace
	return obj
}

// within returns those of some objects that are in one of the namespaces.
func within(objs []configMap, namespaces ...string) []configMap {
	return slices.DeleteFunc(slices.Clone(objs), func(obj configMap) bool { return !slices.Contains(namespaces, obj.Namespace) })
}

// linger makes the call of a watcher slow, or blocks it until blocked is closed.
func linger(ctx context.Context, slow time.Duration, blocked <-chan struct{}) {
	if slow > 0 {
		select {
		case <-time.After(slow):
		case <-ctx.Done():
		}
	}
	if blocked != nil {
		select {
		case <-blocked:
		case <-ctx.Done():
		}
	}
}
