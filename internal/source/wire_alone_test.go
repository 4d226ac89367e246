package source_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/customcacheinformer/informer/internal/framing"
	"github.com/customcacheinformer/informer/internal/source"
)

// Tests of a lister that is replaced.

func (p *play) wire() *source.Wire {
	return source.NewWire(p, framing.Type{}, func(*metav1.ListOptions) {})
}

func startOver(t *testing.T, answers ...answer) (*play, *source.Wire) {
	t.Helper()
	p := &play{t: t, script: answers}
	wire := p.wire()
	p.runWith(aloneOptions(), func(ctx context.Context) {
		p.source.RunOver(ctx, p, wire, "", func() bool { return false })
	})
	return p, wire
}

const versionless = "list failed: the list has no resourceVersion: the watch starts at some later state, and deletes in between are missed until the next list"

// The answer may be the Status of a proxy, decoded as an empty list.
func TestAnEmptyListOfANewListerIsDoubtedIfObjectsAreKnown(t *testing.T) {
	for name, change := range map[string]func(wire, by *source.Wire){"Set": (*source.Wire).Set, "Move": (*source.Wire).Move} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, wire := startOver(t, lists("", versioned("a", "")), sends())
				p.expect(lines("list as of 0", "watch from "), lines(`list [a] at ""`), lines(versionless))
				p.goOn(lists(""), lists("", versioned("a", "")), sends())
				change(wire, p.wire())
				back := map[string]string{"Move": ", went back"}[name]
				p.after(2*time.Second, lines("list as of 0", "list as of 0", "watch from "), lines(`list [a] at ""`+back),
					lines(`list failed: the answer may not be a list of the resource: it has resourceVersion "" and no objects`))
			})
		})
	}
}

// fixed is a server with a version and no objects.
type fixed string

func (f fixed) ListWithContext(context.Context, metav1.ListOptions) (runtime.Object, error) {
	return lists(string(f)).list, nil
}
func (f fixed) WatchWithContext(context.Context, metav1.ListOptions) (watch.Interface, error) {
	return open(), nil
}
func (f fixed) List(metav1.ListOptions) (runtime.Object, error)   { panic("not called") }
func (f fixed) Watch(metav1.ListOptions) (watch.Interface, error) { panic("not called") }

// A question that is under way while the lister is replaced is put to the next one.
func TestTheNewestVersionIsThatOfTheNewLister(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, wire := startOver(t, lists("5"), sends())
		p.expect(lines("list as of 0", "watch from 5"), lines(`list [] at "5"`), nil)
		type result struct {
			version string
			err     error
		}
		results := make(chan result, 1)
		ask := func(ctx context.Context) {
			version, err := p.source.Newest(ctx)
			results <- result{version, err}
		}
		held := make(chan struct{})
		p.goOn(answer{err: context.Canceled, hold: held})
		go ask(t.Context())
		p.expect(lines("probe"), nil, nil)
		wire.Set(source.NewWire(fixed("8"), framing.Type{}, func(*metav1.ListOptions) {}))
		close(held)
		synctest.Wait()
		if got := <-results; got.version != "8" || got.err != nil {
			t.Errorf("the newest version is %q, %v, want 8", got.version, got.err)
		}
		p.stop()
		if version, err := p.source.Newest(t.Context()); err == nil || err.Error() != "the source is not being read" {
			t.Errorf("after the end: %q, %v", version, err)
		}
	})
}
