package valkey_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	client "github.com/valkey-io/valkey-go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/sample"
	"github.com/customcacheinformer/informer/internal/testkit"
	"github.com/customcacheinformer/informer/store"
	"github.com/customcacheinformer/informer/store/storetest"
	"github.com/customcacheinformer/informer/store/valkey"
	"github.com/customcacheinformer/informer/store/valkey/internal/server"
)

func TestMain(m *testing.M) { informertest.Main(m) }

// Short names for the helpers that the test packages share.
var (
	adding   = testkit.Storing
	deleting = testkit.Burying
	must     = testkit.Must
	noError  = testkit.NoError
)

var identities atomic.Int64

// newIdentity returns an identity that no other test has.
func newIdentity() store.Identity {
	return store.Identity{Cluster: fmt.Sprint(identities.Add(1)), Resource: "things"}
}

// open opens a store. The test fails if an error is reported and opts has no handler.
func open(t *testing.T, c client.Client, example any, opts valkey.Options) *valkey.Store {
	t.Helper()
	if opts.ErrorHandler == nil {
		opts.ErrorHandler = func(err error) { t.Errorf("reported: %v", err) }
	}
	s, err := valkey.Open(t.Context(), c, example.(runtime.Object), opts)
	must(t, err)
	return s
}

func TestAStoreImplementsTheInterfacesOfAnInformer(t *testing.T) {
	srv := server.Start(t)
	for name, object := range map[string]func(namespace, name string) informer.AnyObject{
		"protobuf": sample.ConfigMap, "JSON": sample.NewGadget, "CBOR": sample.Widget, "metadata": sample.Metadata,
	} {
		t.Run(name, func(t *testing.T) {
			c, example, identity := srv.Client(), object("", ""), map[informer.Durable]store.Identity{}
			at := func(t *testing.T, id store.Identity) informer.Durable {
				s := open(t, c, example, valkey.Options{Identity: id})
				identity[s] = id
				return s
			}
			again := func(t *testing.T, s informer.Durable) informer.Durable { return at(t, identity[s]) }
			storetest.RunDurable(t, func(t *testing.T) informer.Durable { return at(t, newIdentity()) }, storetest.DurableOptions{
				Object: object, Reopen: again, Crash: again,
			})
		})
	}
}

// add stores an object, and removes the bookmark.
func add(s *valkey.Store, obj informer.AnyObject) error {
	return s.Apply(context.Background(), []informer.Change{adding(obj)}, "")
}

// put stores a ConfigMap in the namespace "a" with this version, which becomes the bookmark.
func put(s *valkey.Store, name, version string) error {
	return s.Apply(context.Background(), []informer.Change{adding(at(sample.ConfigMap("a", name), version))}, version)
}

// wantListed fails and ends the test unless a list of the source has n objects. It returns the version of the list.
func wantListed(t *testing.T, source *valkey.Source, n int) (version string) {
	t.Helper()
	raw, err := source.ListWithContext(t.Context(), metav1.ListOptions{})
	must(t, err)
	list := raw.(*metav1.List)
	if len(list.Items) != n {
		t.Fatalf("the list has %d objects, want %d: %v", len(list.Items), n, list)
	}
	return list.ResourceVersion
}

// stored returns all objects.
func stored(t *testing.T, s *valkey.Store) []informer.Entry {
	t.Helper()
	all, err := s.Scan(t.Context(), "", 100_000)
	noError(t, err)
	return all
}

func TestTheLaterStoreWrites(t *testing.T) {
	srv := server.Start(t)
	c, identity, example := srv.Client(), newIdentity(), sample.ConfigMap("", "")
	old := open(t, c, example, valkey.Options{Identity: identity, Token: 3, Writer: "old"})
	must(t, put(old, "a", "5"))
	for _, token := range []int64{3, 4} {
		young := open(t, c, example, valkey.Options{Identity: identity, Token: token, Writer: "young"})
		if err := put(old, "b", "6"); !errors.Is(err, valkey.ErrFenced) || !errors.Is(old.Err(), valkey.ErrFenced) {
			t.Fatalf("a write of the store before: %v, %v", err, old.Err())
		}
		if _, _, err := old.Get(t.Context(), "a/a"); !errors.Is(err, valkey.ErrFenced) {
			t.Errorf("a read of the store before: %v", err)
		}
		if all := stored(t, young); len(all) != 1 {
			t.Errorf("stored: %v", all)
		}
		if rv, err := young.Resume(t.Context()); rv != "5" || err != nil {
			t.Errorf("the bookmark is %q, %v", rv, err)
		}
		old = young
	}
	if _, err := valkey.Open(t.Context(), c, example.(runtime.Object), valkey.Options{Identity: identity, Token: 3}); !errors.Is(err, valkey.ErrFenced) {
		t.Errorf("a store with a lower token: %v", err)
	}
}

func isPermanent(err error) bool { return errors.Is(err, informer.ErrPermanent) }

func at(obj informer.AnyObject, version string) informer.AnyObject {
	obj.SetResourceVersion(version)
	return obj
}
