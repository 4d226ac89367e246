package valkey_test

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/sample"
	"github.com/customcacheinformer/informer/internal/testkit"
	"github.com/customcacheinformer/informer/share"
	"github.com/customcacheinformer/informer/store/valkey"
	"github.com/customcacheinformer/informer/store/valkey/internal/server"
)

// TestPairsOfAServer shows rows of docs/together.md: writers, and then readers of what they write.
func TestPairsOfAServer(t *testing.T) {
	srv := server.Start(t)
	wire := &testkit.Wire{Source: informertest.NewSource(testkit.Object("a", "1"))}
	configMaps := kubernetes.NewForConfigOrDie(wire.Config()).CoreV1().ConfigMaps
	with := func(change func(*testkit.Options)) (opts testkit.Options) {
		opts = testkit.Options{Share: share.New(), Omit: []string{"metadata.labels"}, Transform: func(obj testkit.ConfigMap) (testkit.ConfigMap, error) {
			obj.Annotations = map[string]string{"transformed": "yes"}
			return obj, nil
		}}
		change(&opts)
		return opts
	}
	// has runs an informer and waits for the object.
	has := func(t *testing.T, inf *testkit.Informer, err error, framed bool) {
		t.Helper()
		must(t, err)
		informertest.Run(t, inf)
		objs, err := inf.List("", nil)
		if err != nil || len(objs) != 1 || objs[0].Labels != nil || objs[0].Annotations["transformed"] != "yes" {
			t.Errorf("%v, %v", objs, err)
		}
		if n := inf.Health().Decoding.Objects; (n > 0) != framed {
			t.Errorf("%d objects were decoded as they arrived", n)
		}
	}
	for name, newWriter := range map[string]func(testkit.Options) (*testkit.Informer, error){
		"alone": func(opts testkit.Options) (*testkit.Informer, error) { return informer.New(configMaps(""), opts) },
		"namespaces": func(opts testkit.Options) (*testkit.Informer, error) {
			return informer.NewInNamespaces(configMaps, []string{"default"}, opts)
		},
		"clusters": func(opts testkit.Options) (*testkit.Informer, error) {
			inf, err := informer.NewOverClusters(opts, informer.ClusterOptions{})
			if err == nil {
				err = inf.Engage("east", informer.ClusterSource{Source: informer.ListWatch(configMaps(""))})
			}
			return inf.CustomCacheInformer, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			identity := newIdentity()
			store := open(t, srv.Client(), &corev1.ConfigMap{}, valkey.Options{Identity: identity})
			writer, err := newWriter(with(func(o *testkit.Options) { o.Durable = store }))
			has(t, writer, err, true)
			if name != "alone" { // the store has a version for each of them
				if _, err := newSource(t, srv.Client(), identity).List(metav1.ListOptions{}); err == nil || !strings.Contains(err.Error(), "reads several namespaces, clusters or kinds") {
					t.Errorf("a reader gets %v", err)
				}
				return
			}
			for _, durable := range []informer.Durable{nil, informertest.NewDurable()} {
				reader, err := informer.NewFrom(newSource(t, srv.Client(), identity), with(func(o *testkit.Options) { o.Durable = durable }))
				has(t, reader, err, false)
				if _, err := reader.Snapshot(); (err == nil) != (durable == nil) {
					t.Errorf("a snapshot: %v", err)
				}
			}
		})
	}
}

// A list with a limit of 1 is a question for the version, and also the first page of a list in pages of one object.
func TestAReaderListsInPagesOfOneObject(t *testing.T) {
	srv := server.Start(t)
	identity := newIdentity()
	writer := open(t, srv.Client(), sample.ConfigMap("", ""), valkey.Options{Identity: identity})
	must(t, errors.Join(put(writer, "a", "4"), put(writer, "b", "5"), put(writer, "c", "6")))
	for _, intake := range []informer.IntakeMode{informer.IntakeWhole, informer.IntakeEarly} {
		opts := informer.Options[informer.AnyObject]{Intake: intake, PageSize: 1}
		reader, err := informer.NewFrom(newSource(t, srv.Client(), identity), opts)
		must(t, err)
		informertest.Run(t, reader)
		if objs, err := reader.List("", nil); err != nil || len(objs) != 3 {
			t.Errorf("%v: %d objects, %v, want 3", intake, len(objs), err)
		}
	}
	source := newSource(t, srv.Client(), identity)
	first, err := source.List(metav1.ListOptions{Limit: 1})
	must(t, err)
	must(t, put(writer, "d", "7"))
	next := metav1.ListOptions{Limit: 1, Continue: first.(*metav1.List).Continue}
	if list, err := source.List(next); !apierrors.IsResourceExpired(err) {
		t.Errorf("the next page of a store that has changed: %v, %v, want 410", list, err)
	}
}
