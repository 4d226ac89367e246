package serving

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apitypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/kinds"
	"github.com/customcacheinformer/informer/share"
	"github.com/customcacheinformer/informer/store"
)

// TestPairsOfARelay shows rows of docs/together.md: informers with the other parts read from a relay.
func TestPairsOfARelay(t *testing.T) {
	f := serve(t)
	f.pods.set(t, pod("a", "n1"))
	f.settle(t)
	config := &rest.Config{Host: f.url, QPS: -1}
	config.Wrap(informer.Transport)
	clientset := kubernetes.NewForConfigOrDie(config)
	pods, source := clientset.CoreV1().Pods, informer.ListWatch(clientset.CoreV1().Pods(""))
	type options = informer.Options[*corev1.Pod]
	type result = *informer.CustomCacheInformer[*corev1.Pod]
	with := func(opts options) options {
		opts.Share, opts.Omit = share.New(), []string{"spec.nodeName"}
		opts.Transform = func(obj *corev1.Pod) (*corev1.Pod, error) {
			obj.Annotations = map[string]string{"transformed": "yes"}
			return obj, nil
		}
		return opts
	}
	clusters, err := informer.NewOverClusters(with(options{}), informer.ClusterOptions{})
	if err == nil {
		err = clusters.Engage("east", informer.ClusterSource{Source: source})
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, inf := range map[string]func() (result, error){
		"alone": func() (result, error) { return informer.NewFrom(source, with(options{})) },
		"Durable": func() (result, error) {
			return informer.NewFrom(source, with(options{Durable: informertest.NewDurable()}))
		},
		"reducing store": func() (result, error) {
			return informer.NewFrom(source, with(options{Store: store.NewProjection(func(obj *corev1.Pod) *corev1.Pod { return obj })}))
		},
		"namespaces": func() (result, error) { return informer.NewInNamespaces(pods, []string{"default"}, with(options{})) },
		"clusters":   func() (result, error) { return clusters.CustomCacheInformer, nil },
	} {
		t.Run(name, func(t *testing.T) {
			inf, err := inf()
			if err != nil {
				t.Fatal(err)
			}
			informertest.Run(t, inf)
			objs, err := inf.List("", nil)
			if err != nil || len(objs) != 1 || objs[0].Spec.NodeName != "" || objs[0].Annotations["transformed"] != "yes" || inf.Health().Decoding.Objects == 0 {
				t.Errorf("%v, %v, %+v", objs, err, inf.Health().Decoding)
			}
			if _, err := inf.Snapshot(); err != nil && name != "Durable" && name != "reducing store" {
				t.Error(err)
			}
			if name != "clusters" && len(inf.SharedIndexInformer().GetStore().List()) != 1 {
				t.Error("client-go's shape has no object")
			}
		})
	}
	t.Run("sink", func(t *testing.T) {
		into := sink{}
		inf, err := informer.NewSink(source, into, with(options{}))
		if err != nil {
			t.Fatal(err)
		}
		informertest.Run(t, inf)
		if len(into) != 1 {
			t.Errorf("the sink has %v", into)
		}
	})
	t.Run("kinds", func(t *testing.T) {
		set, err := kinds.New(kinds.Clients{Dynamic: dynamic.NewForConfigOrDie(config), Discovery: clientset.Discovery()}, kinds.Options[*unstructured.Unstructured]{ErrorHandler: func(context.Context, error) {}})
		if err != nil {
			t.Fatal(err)
		}
		lease, err := set.Acquire(kinds.Kind{Kind: "Pod"})
		if err != nil {
			t.Fatal(err)
		}
		informertest.Run(t, set.Informer())
		informertest.Run(t, set)
		if objs, err := lease.List("", nil); err != nil || len(objs) != 1 {
			t.Errorf("%v, %v: %+v", objs, err, lease.Health())
		}
	})
}

type sink map[string]bool

func (s sink) Put(_ context.Context, key string, _ *corev1.Pod) error {
	s[key] = true
	return nil
}

func (s sink) Remove(context.Context, string, apitypes.UID) error { return nil }
