// Package valkey_test runs writers and readers of store/valkey as processes, over a real API server and a
// real Valkey or Redis server.
package valkey_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/customcacheinformer/informer/e2e/apiserver"
	"github.com/customcacheinformer/informer/e2e/internal/process"
)

// patience limits every wait. It is long because machines may be busy.
const patience = 5 * time.Minute

var server *apiserver.Server

func TestMain(m *testing.M) {
	if text := os.Getenv(roleVariable); text != "" {
		play(text)
		return
	}
	var err error
	if server, err = apiserver.Start(context.Background()); err != nil {
		log.Fatal(err)
	}
	code := m.Run()
	server.Stop()
	os.Exit(apiserver.ExitCode(code))
}

// world is an API server's resource, a Valkey server, and the processes that use them.
type world struct {
	*testing.T
	gvk        schema.GroupVersionKind
	resource   schema.GroupVersionResource
	objects    dynamic.ResourceInterface
	kubeconfig string
	valkey     *process.Process
	command    []string // that starts the Valkey server
	address    string
}

var worlds atomic.Int64

func newWorld(t *testing.T) *world {
	w := &world{T: t, gvk: schema.GroupVersionKind{Group: fmt.Sprintf("w%d.example.com", worlds.Add(1)), Version: "v1", Kind: "Widget"}}
	w.startValkey()
	var err error
	w.resource, err = server.Install(t.Context(), apiserver.Kind{GroupVersionKind: w.gvk})
	w.ok(err)
	config := server.Config()
	config.QPS = -1
	all, err := dynamic.NewForConfig(config)
	w.ok(err)
	w.objects = all.Resource(w.resource).Namespace("default")
	w.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	w.ok(apiserver.WriteKubeconfig(server.Config(), w.kubeconfig))
	return w
}

func (w *world) ok(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// startValkey starts a server, or skips the test if there is no program of one.
func (w *world) startValkey() {
	w.Helper()
	path := ""
	for _, name := range []string{"valkey-server", "redis-server"} {
		if found, err := exec.LookPath(name); err == nil && path == "" {
			path = found
		}
	}
	if path == "" {
		const message = "there is neither valkey-server nor redis-server: make valkey installs it"
		if os.Getenv("VALKEY") == "required" {
			w.Fatal(message)
		}
		w.Skip(message)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	w.ok(err)
	w.address = l.Addr().String()
	w.ok(l.Close())
	port := l.Addr().(*net.TCPAddr).Port
	w.command = []string{path, "--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", w.TempDir(), "--save", "", "--appendonly", "yes", "--appendfsync", "always"}
	w.restartValkey()
	w.Cleanup(func() { w.valkey.Kill() })
}

// restartValkey kills the server, if there is one, and starts it again.
func (w *world) restartValkey() {
	w.Helper()
	if w.valkey != nil {
		w.valkey.Kill()
	}
	var err error
	w.valkey, err = process.Start(exec.Command(w.command[0], w.command[1:]...))
	w.ok(err)
	w.await("the Valkey server does not answer", func() bool {
		conn, err := net.Dial("tcp", w.address)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
}

// await polls until there is true.
func (w *world) await(late string, there func() bool) {
	w.Helper()
	for deadline := time.Now().Add(patience); !there(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.Fatal(late)
		}
	}
}

// object writes an object, and returns its version.
func (w *world) object(name string) string {
	w.Helper()
	spec := map[string]any{"written": time.Now().Format(time.RFC3339Nano)}
	obj := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	obj.SetGroupVersionKind(w.gvk)
	obj.SetName(name)
	written, err := w.objects.Create(w.Context(), obj, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		var old *unstructured.Unstructured
		old, err = w.objects.Get(w.Context(), name, metav1.GetOptions{})
		w.ok(err)
		obj.SetResourceVersion(old.GetResourceVersion())
		written, err = w.objects.Update(w.Context(), obj, metav1.UpdateOptions{})
	}
	w.ok(err)
	return written.GetResourceVersion()
}

func (w *world) remove(name string) {
	w.Helper()
	if err := w.objects.Delete(w.Context(), name, metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
		w.ok(err)
	}
}

// state returns the versions of all objects of the API server, by name.
func (w *world) state() map[string]string {
	w.Helper()
	list, err := w.objects.List(w.Context(), metav1.ListOptions{})
	w.ok(err)
	have := map[string]string{}
	for _, obj := range list.Items {
		have[obj.GetName()] = obj.GetResourceVersion()
	}
	return have
}

// actor is a process with a role.
type actor struct {
	*process.Process
	stdin io.Writer

	mu   sync.Mutex
	said []message
}

// start starts a process. The end of the test kills it.
func (w *world) start(r role) *actor {
	w.Helper()
	r.Server, r.Resource = w.address, w.resource
	if r.Informers == 0 {
		r.Kubeconfig = w.kubeconfig
	}
	text, err := json.Marshal(r)
	w.ok(err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleVariable+"="+string(text))
	a := &actor{}
	a.stdin, err = cmd.StdinPipe()
	w.ok(err)
	stdout, out := io.Pipe()
	cmd.Stdout = out
	a.Process, err = process.Start(cmd)
	w.ok(err)
	var reading sync.WaitGroup
	reading.Go(func() {
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			var m message
			if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
				w.Errorf("%s says %q: %v", r.Name, lines.Text(), err)
				return
			}
			a.mu.Lock()
			a.said = append(a.said, m)
			a.mu.Unlock()
		}
	})
	w.Cleanup(func() {
		a.Kill()
		_ = out.Close()
		reading.Wait()
		if w.Failed() {
			w.Logf("%s:\n%s", r.Name, a.Log)
		}
	})
	return a
}

// all returns what a process has said of one kind.
func (a *actor) all(of func(message) string) (texts []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, m := range a.said {
		if text := of(m); text != "" {
			texts = append(texts, text)
		}
	}
	return texts
}

// has reports whether a process has said something.
func (a *actor) has(what func(message) bool) bool {
	return len(a.all(func(m message) string {
		if what(m) {
			return "yes"
		}
		return ""
	})) > 0
}

func synced(m message) bool { return m.Synced }

func opened(m message) bool { return m.Opened }

// state asks a reader for its state.
func (w *world) stateOf(a *actor) (s *readerState) {
	w.Helper()
	a.mu.Lock()
	before := len(a.said)
	a.mu.Unlock()
	_, err := io.WriteString(a.stdin, "state\n")
	w.ok(err)
	w.await("a reader does not answer", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		for _, m := range a.said[before:] {
			if m.State != nil {
				s = m.State
			}
		}
		return s != nil
	})
	return s
}
