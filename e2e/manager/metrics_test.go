package manager_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/e2e/manager/api"
	"github.com/customcacheinformer/informer/internal/scrape"
	informerprometheus "github.com/customcacheinformer/informer/metrics/prometheus"
)

// TestAManagersInformersAreObserved runs a manager whose informers are shown by a Group. Their
// metrics are served together with the manager's own.
func TestAManagersInformersAreObserved(t *testing.T) {
	t.Parallel()
	var group informer.Group
	figures := informerprometheus.New(group.Health)
	group.Observer = figures.Observer()
	if err := metrics.Registry.Register(figures); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { metrics.Registry.Unregister(figures) })

	w := newWorld(t, informer.ClientGo{Group: &group}.NewSharedIndexInformer)
	mgr, reconciled := w.manager(), &tally{}
	w.OK(builder.ControllerManagedBy(mgr).Named("widgets").For(&api.Widget{}).Owns(&api.Part{}).Complete(reconciled))
	stop := w.start(mgr)
	w.create("w", 1)
	w.until("it is reconciled", reconciled.has("w"))

	answer := scraped()
	if err := scrape.Compare(strings.NewReader(answer), "informer_", "-informer_reconcile_", "-informer_shards_", "-informer_member_", "-informer_namespaces", "-informer_cluster", "-informer_kinds"); err != nil {
		t.Error(err)
	}
	for _, want := range []string{`informer_objects{informer="Widget"} 1`, `informer_synced{informer="Part"} 1`, `controller_runtime_reconcile_total{controller="widgets"`} {
		if !strings.Contains(answer, want) {
			t.Errorf("there is no %s", want)
		}
	}
	w.OK(group.Ready())
	stop()
	if got := scraped(); strings.Contains(got, "\ninformer_") {
		t.Error("metrics of the informers remain after the manager has stopped")
	}
}

// scraped returns the answer of controller-runtime's metrics server.
func scraped() string {
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(metrics.Registry, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return answer.Body.String()
}
