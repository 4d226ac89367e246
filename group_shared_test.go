package informer_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
)

func TestSharedMakesOneInformerForATypeAndAScope(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, made := newGroup(t), 0
		get := func(scope string) (*ci, error) {
			return informer.GetOrAdd(g, scope, func() (*ci, error) {
				made++
				return newInformer(t, informertest.NewSource(object("a", "1")), options{Name: "maps " + scope}), nil
			})
		}
		shared := func(scope string) *ci { return must(get(scope)) }
		a := shared("")
		pods := must(informer.GetOrAdd(g, "", func() (*informer.CustomCacheInformer[*corev1.Pod], error) {
			return podInformer(t, informertest.NewSource[*corev1.Pod](), ""), nil
		}))
		stop := startGroup(t, g)
		mustSync(t, g)
		b := shared("kube-system") // runs at once
		if shared("") != a || shared("kube-system") != b || a == b || made != 2 {
			t.Errorf("%d informers were made", made)
		}
		mustSync(t, b)
		if !a.HasSynced() || !pods.HasSynced() || len(g.Health()) != 3 {
			t.Errorf("not all are members: %v", g.Health())
		}
		noError(t, g.Remove(a))
		if c := shared(""); c == a || made != 3 || shared("") != c || shared("kube-system") != b {
			t.Errorf("after a Remove, %d informers were made", made)
		}
		mustSync(t, g)
		noError(t, stop())
		equal(t, "after the stop, it is still shared", shared("kube-system") == b, true)
		if _, err := get("new"); !errors.Is(err, informer.ErrStopped) || !strings.HasPrefix(err.Error(), "informer: Group: GetOrAdd: ") {
			t.Errorf("after the stop: %v", err)
		}
	})
}

func TestSharedWaitsForTheOneThatMakesAndForNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, release, made := newGroup(t), make(chan struct{}), 0
		construct := func() (*ci, error) {
			made++
			<-release
			return informer.NewFrom(informertest.NewSource(object("a", "1")), options{Name: "slow"})
		}
		results := make(chan *ci, 10)
		for range cap(results) {
			go func() {
				inf, err := informer.GetOrAdd(g, "slow", construct)
				noError(t, err)
				results <- inf
			}()
		}
		synctest.Wait()
		if made != 1 || len(results) > 0 {
			t.Fatalf("make was called %d times, %d have returned", made, len(results))
		}
		// Everything else works in the meantime.
		startGroup(t, g)
		add(t, g, &stub{name: "added"})
		mustSync(t, g)
		g.Health()
		nested, err := informer.GetOrAdd(g, "other", func() (*ci, error) {
			if _, err := informer.GetOrAdd(g, "slow", func() (*informer.CustomCacheInformer[*corev1.Pod], error) {
				return podInformer(t, informertest.NewSource[*corev1.Pod](), ""), nil
			}); err != nil {
				return nil, err
			}
			return newInformer(t, informertest.NewSource(object("a", "1")), options{}), nil
		})
		if err != nil || len(g.Health()) != 3 {
			t.Errorf("%v, members %v", err, g.Health())
		}
		mustSync(t, nested)
		close(release)
		first := <-results
		for range cap(results) - 1 {
			equal(t, "one informer for one scope", <-results == first, true)
		}
	})
}

func TestAnErrorOfSharedIsReturnedAndNotRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, mine, release := newGroup(t), errors.New("mine"), make(chan struct{})
		get := func(g *informer.Group, scope string, construct func() (*ci, error)) error {
			inf, err := informer.GetOrAdd(g, scope, construct)
			if (inf == nil) == (err == nil) {
				t.Errorf("GetOrAdd: %v, %v", inf, err)
			}
			return err
		}
		breaks := func() (*ci, error) { <-release; return nil, mine } //nolint:unparam // the type is GetOrAdd's
		var results []<-chan error
		for range 3 { // one of them makes the informer, the others wait
			results = append(results, asking(func() error { return get(g, "", breaks) }))
		}
		pending(t, "GetOrAdd", results[0])
		close(release)
		for _, result := range results {
			fails(t, <-result, mine)
		}
		var waits <-chan error
		func() {
			defer func() { equal(t, "the panic is lost", recover() == nil, false) }()
			_ = get(g, "", func() (*ci, error) {
				waits = asking(func() error { return get(g, "", breaks) })
				pending(t, "GetOrAdd", waits)
				panic("mine")
			})
		}()
		inf := newInformer(t, informertest.NewSource[configMap](), options{})
		makes := func() (*ci, error) { return inf, nil }
		says(t, <-waits, "panicked")
		says(t, get(g, "", func() (*ci, error) { return nil, nil }), "informer: Group: GetOrAdd: the member is a nil *informer.CustomCacheInformer[")
		noError(t, get(g, "", makes))
		says(t, get(g, "other", makes), "already a member")
		says(t, get(nil, "", makes), "the group is nil")
		says(t, get(g, "", nil), "construct is nil")
	})
}

func TestATypeThatDoesNotNameItsKindNeedsAScope(t *testing.T) {
	var g informer.Group
	needsScope[*metav1.PartialObjectMetadata](t, &g, "*v1.PartialObjectMetadata")
	needsScope[*unstructured.Unstructured](t, &g, "*unstructured.Unstructured")
	needsScope[informer.AnyObject](t, &g, "informer.AnyObject")
	equal(t, "members, one for each scope", len(g.Health()), 6)
}

func needsScope[T informer.Object](t *testing.T, g *informer.Group, name string) {
	t.Helper()
	get := func(scope string) (*informer.CustomCacheInformer[T], error) {
		return informer.GetOrAdd(g, scope, func() (*informer.CustomCacheInformer[T], error) {
			return informer.NewFrom(informertest.NewSource[T](), informer.Options[T]{Name: name + " of " + scope})
		})
	}
	if inf, err := get(""); inf != nil || err == nil || !strings.Contains(err.Error(), name+" does not name the kind") || !strings.Contains(err.Error(), "gvr.String()") {
		t.Errorf("GetOrAdd with an empty scope: %v, %v", inf, err)
	}
	pods, err := get("pods")
	secrets, other := get("secrets")
	if err != nil || other != nil || pods == secrets {
		t.Errorf("GetOrAdd for two kinds: %v, %v, the same: %v", err, other, pods == secrets)
	}
	if again, err := get("pods"); again != pods || err != nil {
		t.Errorf("GetOrAdd for the first kind: another one, or %v", err)
	}
}
