package website

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/testing"
)

// Fake is an Interface without an API server, for tests. client-go's fake clientsets are made
// in the same way.
type Fake struct{ testing.Fake }

// NewFake returns a Fake that holds sites. It panics if two have the same name.
func NewFake(sites ...*Website) *Fake {
	scheme := runtime.NewScheme()
	AddToScheme(scheme)
	tracker := testing.NewObjectTracker(scheme, serializer.NewCodecFactory(scheme).UniversalDecoder())
	for _, site := range sites {
		if err := tracker.Add(site); err != nil {
			panic(err)
		}
	}
	f := &Fake{}
	f.AddReactor("*", "*", testing.ObjectReaction(tracker))
	f.AddWatchReactor("*", func(action testing.Action) (bool, watch.Interface, error) {
		w, err := tracker.Watch(action.GetResource(), action.GetNamespace())
		return true, w, err
	})
	return f
}

// Websites returns the Client of a namespace, or of all namespaces if it is "".
func (f *Fake) Websites(namespace string) Client {
	return gentype.NewFakeClientWithList(&f.Fake, namespace, Resource, Kind, newWebsite, newList,
		func(dst, src *List) { dst.ListMeta = src.ListMeta },
		func(list *List) []*Website { return gentype.ToPointerSlice(list.Items) },
		func(list *List, sites []*Website) { list.Items = gentype.FromPointerSlice(sites) })
}
