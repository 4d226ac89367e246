package valkey_test

import (
	"context"
	"strings"
	"testing"

	client "github.com/valkey-io/valkey-go"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/store"
	"github.com/customcacheinformer/informer/store/valkey"
	"github.com/customcacheinformer/informer/store/valkey/internal/server"
)

func openShared(ctx context.Context, server client.Client, identity store.Identity, token int64) (*valkey.Store, error) {
	return valkey.Open(ctx, server, &corev1.Pod{}, valkey.Options{Identity: identity, Token: token})
}

func newReader(server client.Client, identity store.Identity) (*informer.CustomCacheInformer[*corev1.Pod], error) {
	source, err := valkey.NewSource(server, &corev1.Pod{}, identity)
	if err != nil {
		return nil, err
	}
	return informer.NewFrom(source, informer.Options[*corev1.Pod]{})
}

func TestAReaderGetsTheEventsOfTheWriter(t *testing.T) {
	srv, identity := server.Start(t), newIdentity()
	s, err := openShared(t.Context(), srv.Client(), identity, 1)
	must(t, err)
	pod := func(name string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	}
	source := informertest.NewSource(pod("a"), pod("b"))
	writer, err := informer.NewFrom(source, informer.Options[*corev1.Pod]{Durable: s})
	must(t, err)
	reader, err := newReader(srv.Client(), identity)
	must(t, err)
	var seen informertest.Recorder[*corev1.Pod]
	if _, err := reader.AddWatcher(&seen, informer.WatcherOptions{}); err != nil {
		t.Fatal(err)
	}
	informertest.Run(t, writer)
	informertest.Run(t, reader)
	seen.Expect(t, "added default/a", "added default/b")
	source.Apply(pod("c"))
	changed := pod("a")
	changed.Labels = map[string]string{"changed": "yes"}
	source.Apply(changed)
	if _, err := source.Delete(types.NamespacedName{Namespace: "default", Name: "b"}); err != nil {
		t.Fatal(err)
	}
	seen.Expect(t, "added default/c", "updated default/a", "deleted default/b")
	st, err := s.Status(t.Context())
	if err != nil || st.Token != 1 || st.Objects != 2 || st.Log != 3 || st.Version != source.ResourceVersion() || st.Since.IsZero() {
		t.Errorf("the status of the store: %+v, %v", st, err)
	}
	if health := writer.Health(); !strings.Contains(health.Store, "with token 1") {
		t.Errorf("Health.Store is %q", health.Store)
	}
}
