package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/customcacheinformer/informer/e2e/operator/internal/cluster"
	"github.com/customcacheinformer/informer/examples/operator/website"
	"github.com/customcacheinformer/informer/internal/scrape"
)

// TestTheOperatorIsObserved runs the operator as in production, with probes, metrics and its
// page.
func TestTheOperatorIsObserved(t *testing.T) {
	ctx, w := begin(t, "-http", "localhost:0")
	site := names(1)
	if err := w.CreateSites(ctx, w.keys(site)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.settled(ctx, site[0], cluster.Host(w.key(site[0])), website.Pending); err != nil {
		t.Fatal(err)
	}
	address := regexp.MustCompile(`"Serving" address="(\S+)"`).FindStringSubmatch(w.operator.Log.String())
	if address == nil {
		t.Fatalf("it does not print its address:\n%s", w.operator.Log)
	}
	served := func(path string) (answer string) {
		t.Helper()
		// Poll, as the kubelet does.
		err := wait.PollUntilContextCancel(ctx, 10*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			status, body, err := fetch(ctx, "http://"+address[1]+path)
			answer = body
			return status == http.StatusOK, err
		})
		if err != nil {
			t.Fatalf("%s: %v\n%s", path, err, answer)
		}
		return answer
	}
	served("/livez")
	served("/readyz")
	metrics := ""
	err := wait.PollUntilContextCancel(ctx, 10*time.Millisecond, true, func(context.Context) (bool, error) {
		metrics = served("/metrics")
		return strings.Contains(metrics, "informer_reconcile_last_success"), nil // the first call may fail
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := scrape.Compare(strings.NewReader(metrics), "informer_", "workqueue_", "-informer_shards_", "-informer_member_", "-informer_namespaces", "-informer_cluster", "-informer_kinds"); err != nil {
		t.Error(err)
	}
	for _, want := range []string{`informer_objects{informer="Website"} 1`, `informer_objects{informer="Ingress"} 1`, `workqueue_adds_total{name="website"}`} {
		if !strings.Contains(metrics, want) {
			t.Errorf("the metrics do not have %s", want)
		}
	}
	if page := served("/debug/informers"); !strings.Contains(page, "<bdi>Website</bdi>") || !strings.Contains(page, "2 informers") {
		t.Errorf("the page is\n%s", page)
	}
	if err := w.operator.Stop(ctx); err != nil {
		t.Error(err)
	}
}

func fetch(ctx context.Context, url string) (status int, body string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	request.Close = true
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = answer.Body.Close() }()
	read, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, "", fmt.Errorf("%s: %w", url, err)
	}
	return answer.StatusCode, string(read), nil
}
