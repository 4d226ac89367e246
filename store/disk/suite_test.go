package disk_test

import (
	"errors"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/sample"
	"github.com/customcacheinformer/informer/internal/testkit"
	"github.com/customcacheinformer/informer/store/disk"
	"github.com/customcacheinformer/informer/store/storetest"
)

// Short names for the helpers that the test packages share.
var (
	adding   = testkit.Storing
	deleting = testkit.Burying
	must     = testkit.Must
	noError  = testkit.NoError
)

// open opens a store. The end of the test closes it.
func open(t testing.TB, path string, example runtime.Object, opts disk.Options) *disk.Store {
	t.Helper()
	s, err := tryOpen(t, path, example, opts)
	must(t, err)
	return s
}

// identified gives opts a cluster if they name none.
func identified(opts disk.Options) disk.Options {
	if opts.Identity.Cluster == "" {
		opts.Identity.Cluster = thisIdentity.Cluster
	}
	return opts
}

// tryOpen fails the test if an error is reported and opts has no handler. It gives opts a cluster.
func tryOpen(t testing.TB, path string, example runtime.Object, opts disk.Options) (*disk.Store, error) {
	t.Helper()
	if opts.ErrorHandler == nil {
		opts.ErrorHandler = func(err error) { t.Errorf("reported: %v", err) }
	}
	s, err := disk.Open(path, example, identified(opts))
	if err == nil {
		t.Cleanup(func() { noError(t, s.Close()) })
	}
	return s, err
}

func newPath(t testing.TB) string { return filepath.Join(t.TempDir(), "objects.db") }

// crashed returns the path of a copy of the file as it is now, as if the process had been
// killed.
func crashed(t *testing.T, path string) string {
	t.Helper()
	to := newPath(t)
	writeFile(t, to, readFile(t, path))
	return to
}

func TestAStoreImplementsTheInterfacesOfAnInformer(t *testing.T) {
	for name, object := range map[string]func(namespace, name string) informer.AnyObject{
		"protobuf": sample.ConfigMap, "JSON": sample.NewGadget, "CBOR": sample.Widget, "metadata": sample.Metadata,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			example, paths := object("", "").(runtime.Object), map[informer.Durable]string{}
			at := func(t *testing.T, path string) *disk.Store {
				// SurviveProcess, because hardly any of these checks are about the disk.
				s := open(t, path, example, disk.Options{Identity: thisIdentity, Durability: disk.SurviveProcess})
				paths[s] = path
				return s
			}
			storetest.RunDurable(t, func(t *testing.T) informer.Durable { return at(t, newPath(t)) }, storetest.DurableOptions{
				Object: object,
				Reopen: func(t *testing.T, s informer.Durable) informer.Durable {
					must(t, s.(*disk.Store).Close())
					return at(t, paths[s])
				},
				Crash: func(t *testing.T, s informer.Durable) informer.Durable { return at(t, crashed(t, paths[s])) },
			})
		})
	}
}

func TestAClosedStoreSaysSo(t *testing.T) {
	s := open(t, newPath(t), sample.ConfigMap("", ""), disk.Options{
		Indexers: cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc},
	})
	for range 2 {
		must(t, s.Close())
	}
	_, resume := s.Resume(t.Context())
	_, scan := s.Scan(t.Context(), "", 1)
	_, tombstones := s.Tombstones(t.Context())
	_, _, get := s.Get(t.Context(), "a")
	_, byIndex := s.ByIndex(t.Context(), cache.NamespaceIndex, "a")
	for op, err := range map[string]error{
		"Apply": s.Apply(t.Context(), nil, "1"), "Forget": s.Forget(t.Context(), nil),
		"Resume": resume, "Scan": scan, "Tombstones": tombstones, "Get": get, "ByIndex": byIndex,
		"AddIndexers": s.AddIndexers(cache.Indexers{"a": cache.MetaNamespaceIndexFunc}),
	} {
		if !errors.Is(err, disk.ErrClosed) {
			t.Errorf("%s: %v, want %v", op, err, disk.ErrClosed)
		}
	}
}
