package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/customcacheinformer/informer/informertest"
)

func TestMain(m *testing.M) {
	klog.SetLogger(klog.Logger{})
	informertest.Main(m)
}

func TestAnotherReplicaTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(config("default", "a", nil), config("default", "b", map[string]string{"owner": "shop"}))
		var down atomic.Bool // the second replica cannot renew its Lease
		client.PrependReactor("update", "leases", func(action clienttesting.Action) (bool, runtime.Object, error) {
			holder := *action.(clienttesting.UpdateAction).GetObject().(*coordinationv1.Lease).Spec.HolderIdentity
			if down.Load() && holder == "second" {
				return true, nil, errors.New("the API server cannot be reached")
			}
			return false, nil, nil
		})
		first := run(t, client, "first")
		time.Sleep(time.Second)
		second := run(t, client, "second")
		time.Sleep(10 * time.Second)
		first.shows("/readyz", "ok")
		second.shows("/readyz", "ok")
		second.shows("/livez", "ok")
		first.shows("/metrics", `informer_synced{informer="ConfigMap"} 1`)
		first.shows("/debug/informers", "working")
		second.shows("/debug/informers", "standby")
		first.logged("default/a")
		second.logged("")

		first.stop()
		if err := <-first.ended; err != nil {
			t.Errorf("the first replica has ended with %v", err)
		}
		time.Sleep(10 * time.Second)
		second.shows("/debug/informers", "working")
		second.logged("default/a")

		down.Store(true)
		if err := <-second.ended; err == nil || !strings.Contains(err.Error(), "the lease is lost") {
			t.Errorf("without its Lease, the second replica has ended with %v", err)
		}
	})
}

func config(namespace, name string, labels map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}}
}

type running struct {
	*testing.T
	*replica
	log   ktesting.Buffer
	stop  context.CancelFunc // as SIGTERM does
	ended chan error
}

func run(t *testing.T, client kubernetes.Interface, name string) *running {
	t.Helper()
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	r := &running{T: t, log: logger.GetSink().(ktesting.Underlier).GetBuffer(), ended: make(chan error, 1)}
	var err error
	if r.replica, err = newReplica(client, "default", name); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(klog.NewContext(t.Context(), logger))
	r.stop = stop
	go func() { r.ended <- runElected(ctx, &r.group, r.lock, r.elected, r.lost) }()
	return r
}

// shows fails the test unless the answer to a request has a text.
func (r *running) shows(path, text string) {
	r.Helper()
	w := httptest.NewRecorder()
	r.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://localhost"+path, nil))
	if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), text) {
		r.Errorf("%s: %d, without %q:\n%.2000s", path, w.Code, text, w.Body)
	}
}

// logged fails the test unless the replica has logged only of this ConfigMap that it has no owner, or of
// none if key is "".
func (r *running) logged(key string) {
	r.Helper()
	text := r.log.String()
	said := strings.Count(text, "A ConfigMap has no owner")
	if key == "" && said == 0 || key != "" && said == 1 && strings.Contains(text, key) {
		return
	}
	r.Errorf("the log, with %d lines of ConfigMaps, want %q:\n%s", said, key, text)
}
