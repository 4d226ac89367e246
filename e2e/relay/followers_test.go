package relay_test

import (
	"context"
	"maps"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
)

// follower is an informer of a kind, which reads from a relay.
type follower struct {
	name string
	list func() []*coordinationv1.Lease
}

// contents has the version of each object, and the value that the test has set.
type contents map[string]string

func contentsOf(leases []*coordinationv1.Lease) contents {
	c := contents{}
	for _, l := range leases {
		c[l.Name] = l.ResourceVersion + " " + l.Labels["changed"]
	}
	return c
}

// followers starts an informer of this library and one of client-go.
func (w *world) followers(config *rest.Config) []follower {
	w.Helper()
	own := w.agent(config, "informer")
	shared := cache.NewSharedIndexInformer(informer.ListWatch(leasesOf(w, config)), &coordinationv1.Lease{}, 0, nil)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { shared.RunWithContext(ctx) })
	w.Cleanup(func() { cancel(); running.Wait() })
	return []follower{
		{"this library's informer", func() []*coordinationv1.Lease {
			all, err := own.List("", labels.Everything())
			w.OK(err)
			return all
		}},
		{"client-go's informer", func() (all []*coordinationv1.Lease) {
			for _, obj := range shared.GetStore().List() {
				all = append(all, obj.(*coordinationv1.Lease))
			}
			return all
		}},
	}
}

// truth returns the contents of the API server.
func (w *world) truth() contents {
	w.Helper()
	list, err := w.leases.List(w.Context(), metav1.ListOptions{})
	w.OK(err)
	var all []*coordinationv1.Lease
	for i := range list.Items {
		all = append(all, &list.Items[i])
	}
	return contentsOf(all)
}

// awaitEqual waits until the followers have the contents of the API server, which must not change meanwhile.
func (w *world) awaitEqual(all []follower) {
	w.Helper()
	begun, want := time.Now(), w.truth()
	for _, f := range all {
		w.Await(f.name+" does not become equal to the API server", func() bool {
			return maps.Equal(contentsOf(f.list()), want)
		})
		w.Logf("%s is equal to the API server after %v", f.name, time.Since(begun).Round(time.Millisecond))
	}
}
