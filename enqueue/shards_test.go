package enqueue

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/sharding"
)

// behindCache reads 8 namespaces, and is behind in all of them.
type behindCache struct{}

func (*behindCache) Versions() (all []informer.SourceVersions) {
	for n := range 8 {
		all = append(all, informer.SourceVersions{Namespace: fmt.Sprint("ns", n), ResourceVersion: "1"})
	}
	return all
}

func (*behindCache) WaitForVersion(ctx context.Context, _, _ string) error {
	<-ctx.Done()
	return ctx.Err()
}

func (c *behindCache) WaitForVersionIn(ctx context.Context, _, version string) error {
	return c.WaitForVersion(ctx, "", version)
}

func (*behindCache) ServerVersion(context.Context, string) (string, error) { return "5", nil }

func (*behindCache) ServerVersionIn(context.Context, string) (string, error) { return "5", nil }

// The race detector shows whether the answers are protected.
func TestManySourcesAreAskedAtOnce(t *testing.T) {
	c := &Controller[types.NamespacedName]{inputs: []input[types.NamespacedName]{{cache: &behindCache{}}}}
	s := &sharded[types.NamespacedName]{controller: c, answers: map[string]answer{}}
	seen := sharding.Versions{}
	s.eachCache(func(name string, _ cache, _ informer.SourceVersions) { seen[name] = "9" })
	for range 200 {
		if missing := s.Missing(t.Context(), seen); len(missing) != 8 {
			t.Fatal(missing)
		}
	}
}

// embedded is a member that embeds an informer, and not a pointer.
type embedded struct {
	*informer.CustomCacheInformer[*corev1.Pod]
}

func TestReadsMayBeAStruct(t *testing.T) {
	pods, err := informer.NewFrom(informertest.NewSource[*corev1.Pod](), informer.Options[*corev1.Pod]{})
	if err != nil {
		t.Fatal(err)
	}
	c := &Controller[types.NamespacedName]{opts: Options{Reads: []informer.Member{embedded{pods}}}}
	s := &sharded[types.NamespacedName]{controller: c}
	s.Seen() // the set calls it every few seconds
}
