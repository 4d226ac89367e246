package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/scrape"
)

func TestMain(m *testing.M) { informertest.Main(m) }

// The test reads the page and the metrics of the quickstart while it runs.
func TestTheQuickstartServesItsPageAndItsMetrics(t *testing.T) {
	screen, out := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := run(t.Context(), out, "", "", "localhost:0", 2*time.Second)
		_ = out.Close()
		ended <- err
	}()
	lines := bufio.NewReader(screen)
	first, err := lines.ReadString('\n')
	page := regexp.MustCompile(`http://\S+`).FindString(first)
	if err != nil || page == "" {
		t.Fatalf("it begins with %q, %v", first, err)
	}
	said := make(chan string)
	synced, looked := make(chan struct{}), make(chan struct{})
	go func() { // the quickstart blocks if its output is not read
		var all strings.Builder
		for {
			line, err := lines.ReadString('\n')
			all.WriteString(line)
			if strings.Contains(line, "late") && strings.Contains(line, "initial state") {
				close(synced)
				<-looked // the quickstart cannot print that it ends before this
			}
			if err != nil {
				said <- all.String()
				return
			}
		}
	}()
	select {
	case <-synced:
	case all := <-said:
		t.Fatalf("the third watcher has not joined:\n%s", all)
	}

	if got := fetch(t, page); !strings.Contains(got, "<bdi>slow</bdi>") {
		t.Errorf("the page does not show the slow watcher:\n%s", got)
	}
	metrics := fetch(t, strings.Replace(page, "/debug/informers", "/metrics", 1))
	if err := scrape.Compare(strings.NewReader(metrics), "informer_", "-informer_reconcile_", "-informer_shards_", "-informer_member_", "-informer_namespaces", "-informer_cluster", "-informer_kinds"); err != nil {
		t.Error(err)
	}
	for _, watcher := range []string{"quick", "slow", "late"} {
		if !strings.Contains(metrics, `informer_watcher_delivered_total{informer="Pod",watcher="`+watcher+`"} `) {
			t.Errorf("%s is not there", watcher)
		}
	}
	close(looked)
	if all := <-said; strings.Count(all, "equal") != 3 || !strings.Contains(all, "a reader finds") {
		t.Errorf("it prints:\n%s", all)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestTheThreeWatchersEndEqualToTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, source := fake.NewClientset(), informertest.NewSource(pod("", 1), pod("", 2))
		source.Serve(&client.Fake, "pods", &corev1.PodList{})
		go func() {
			for i := range 40 {
				time.Sleep(90 * time.Millisecond)
				changed := pod("", i%5)
				changed.Labels = map[string]string{"change": fmt.Sprint(i)}
				source.Apply(changed)
			}
		}()
		var out bytes.Buffer
		if err := follow(t.Context(), &out, &informer.Group{}, client.CoreV1().Pods(""), 4*time.Second); err != nil {
			t.Error(err)
		}
		for want, times := range map[string]int{
			" equal\n": 3,
			"late   has seen the initial state: 5 objects":   1,
			"a reader finds 5 objects, such as default/web-": 1,
		} {
			if got := strings.Count(out.String(), want); got != times {
				t.Errorf("it prints %q %d times, want %d:\n%s", want, got, times, out.String())
			}
		}
	})
}

func TestAnInformerThatDoesNotSyncIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, source := fake.NewClientset(), informertest.NewSource[*corev1.Pod]()
		source.Serve(&client.Fake, "pods", &corev1.PodList{})
		source.Fail("list", context.DeadlineExceeded, -1)
		group := &informer.Group{ErrorHandler: func(context.Context, error) {}}
		if err := follow(t.Context(), io.Discard, group, client.CoreV1().Pods(""), time.Second); err == nil {
			t.Error("no error")
		}
	})
}

func fetch(t *testing.T, url string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", url, answer.Status, err)
	}
	return string(body)
}
