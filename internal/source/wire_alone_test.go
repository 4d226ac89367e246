package source_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
