// Package nodeagent_test runs the example node agent as a process, against a real API server.
package nodeagent_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/customcacheinformer/informer/e2e/apiserver"
	"github.com/customcacheinformer/informer/e2e/internal/process"
)

const program = "github.com/customcacheinformer/informer/examples/nodeagent"

func TestMain(m *testing.M) { os.Exit(apiserver.ExitCode(m.Run())) }

func TestTheAgentKnowsThePodsOfItsNode(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // the machine may be busy
	defer cancel()
	file, err := process.Build(ctx, t.TempDir(), program)
	if err != nil {
		t.Fatal(err)
	}
	server, err := apiserver.StartWithPods(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Stop()
	client, err := kubernetes.NewForConfig(server.Config())
	if err != nil {
		t.Fatal(err)
	}
	pods := client.CoreV1().Pods("default")
	run(ctx, t, pods, "ours", "here", "10.0.0.1", "fd00::1")
	run(ctx, t, pods, "theirs", "there", "10.0.1.1")

	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := apiserver.WriteKubeconfig(server.Config(), kubeconfig); err != nil {
		t.Fatal(err)
	}
	agent, err := process.Start(exec.CommandContext(ctx, file, "-kubeconfig", kubeconfig, "-node", "here", "-http", "127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	defer agent.Kill()
	address := ""
	await(ctx, t, agent, "the log shows the address", func() bool {
		if found := regexp.MustCompile(`"Serving" address="(\S+)"`).FindStringSubmatch(agent.Log.String()); found != nil {
			address = found[1]
		}
		return address != ""
	})
	answers := func(path string, want int, with string) {
		t.Helper()
		await(ctx, t, agent, fmt.Sprintf("%s answers %d with %q", path, want, with), func() bool {
			status, body := get(ctx, "http://"+address+path)
			return status == want && strings.Contains(body, with)
		})
	}
	answers("/readyz", http.StatusOK, "")
	answers("/pods/10.0.0.1", http.StatusOK, `"name":"ours"`)
	answers("/pods/fd00::1", http.StatusOK, `"name":"ours"`)
	answers("/pods/10.0.1.1", http.StatusNotFound, "")
	run(ctx, t, pods, "late", "here", "10.0.0.2")
	answers("/pods/10.0.0.2", http.StatusOK, `"name":"late"`)
	now := int64(0)
	if err := pods.Delete(ctx, "ours", metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		t.Fatal(err)
	}
	answers("/pods/10.0.0.1", http.StatusNotFound, "")
	if err := agent.Stop(ctx); err != nil {
		t.Error(err)
	}
}

// run creates a Pod that is bound to a node, and reports its addresses as a kubelet does.
func run(ctx context.Context, t *testing.T, pods typedcorev1.PodInterface, name, node string, ips ...string) {
	t.Helper()
	pod, err := pods.Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "main", Image: "none"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod.Status.Phase = corev1.PodRunning
	for _, ip := range ips {
		pod.Status.PodIPs = append(pod.Status.PodIPs, corev1.PodIP{IP: ip})
	}
	if _, err := pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// await waits until done returns true. It fails the test if the agent or ctx ends first.
func await(ctx context.Context, t *testing.T, agent *process.Process, what string, done func() bool) {
	t.Helper()
	err := wait.PollUntilContextCancel(ctx, 10*time.Millisecond, true, func(context.Context) (bool, error) {
		select {
		case <-agent.Ended():
			return false, fmt.Errorf("the agent has exited")
		default:
			return done(), nil
		}
	})
	if err != nil {
		t.Fatalf("waiting until %s: %v\n%s", what, err, agent.Log)
	}
}

func get(ctx context.Context, url string) (status int, body string) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err.Error()
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(text)
}
