// Package stage provides the common parts of the worlds of tests: waits, and API servers that are restarted.
package stage

import (
	"context"
	"os"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// Patience limits every wait. It only detects a hang: machines may be slow and busy.
// After ten minutes go test would end the program.
const Patience = 5 * time.Minute

// T is a test. Worlds embed it.
type T struct{ *testing.T }

// OK fails the test at once if err is not nil.
func (t T) OK(err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Await polls until there returns true. It sleeps on the real clock, because the servers and processes that a test waits for
// have no channel and no fake clock. It fails the test with late if that takes too long.
func (t T) Await(late string, there func() bool) {
	t.Helper()
	for deadline := time.Now().Add(Patience); !there(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(late)
		}
	}
}

// AwaitServed waits until a server serves resources.
func (t T) AwaitServed(client dynamic.Interface, resources ...schema.GroupVersionResource) {
	t.Helper()
	for _, resource := range resources {
		t.Await(resource.String()+" is not served", func() bool {
			_, err := client.Resource(resource).List(context.Background(), metav1.ListOptions{Limit: 1})
			return err == nil
		})
	}
}

// NoticeSilence has the clients of this process, and of those that it starts, give up a silent connection after five
// seconds. By default they probe one that has been silent for 30 s, and give it up 15 s later.
func NoticeSilence() {
	for name, seconds := range map[string]string{"HTTP2_READ_IDLE_TIMEOUT_SECONDS": "3", "HTTP2_PING_TIMEOUT_SECONDS": "2"} {
		if err := os.Setenv(name, seconds); err != nil {
			panic(err)
		}
	}
}

// Pass waits for the time d. It returns false if ctx ends first.
func Pass(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
