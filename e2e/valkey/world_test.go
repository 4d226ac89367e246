// Package valkey_test runs writers and readers of store/valkey as processes, over a real API server and a
// real Valkey or Redis server.
package valkey_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	client "github.com/valkey-io/valkey-go"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/customcacheinformer/informer/e2e/apiserver"
	fronts "github.com/customcacheinformer/informer/e2e/internal/front"
	"github.com/customcacheinformer/informer/e2e/internal/process"
	"github.com/customcacheinformer/informer/e2e/internal/stage"
	"github.com/customcacheinformer/informer/internal/lab"
	"github.com/customcacheinformer/informer/store/valkey"
)

var server *apiserver.Server

func TestMain(m *testing.M) {
	lab.Roles{"valkey": lab.RoleOf(play)}.Play()
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
	stage.T
	front      *fronts.Gateway // before the API server
	gvk        schema.GroupVersionKind
	resource   schema.GroupVersionResource
	objects    dynamic.ResourceInterface
	kubeconfig string
	valkey     *process.Process
	command    []string // that starts the Valkey server
	address    string
	writes     int
}

var worlds atomic.Int64

func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldOn(stage.T{T: t}, server)
}

func newWorldOn(t stage.T, server *apiserver.Server) *world {
	t.Helper()
	w := &world{T: t, gvk: schema.GroupVersionKind{Group: fmt.Sprintf("w%d.example.com", worlds.Add(1)), Version: "v1", Kind: "Widget"}}
	w.startValkey()
	var err error
	w.resource, err = server.Install(t.Context(), apiserver.Kind{GroupVersionKind: w.gvk})
	w.OK(err)
	w.front = fronts.NewGateway(w.resource.Resource, nil)
	t.Cleanup(w.front.Close)
	w.connect(server)
	w.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	w.OK(apiserver.WriteKubeconfig(w.front.Config(), w.kubeconfig))
	return w
}

// connect has the front, and the test's own client, which does not go through it, reach an API server.
func (w *world) connect(server *apiserver.Server) {
	w.Helper()
	all, err := dynamic.NewForConfig(server.Config())
	w.OK(err)
	w.AwaitServed(all, w.resource)
	w.objects = all.Resource(w.resource).Namespace("default")
	w.OK(w.front.To(server.Config()))
}

// wantATakeover fails the test unless a process has asked for one object and then for one watch.
func (w *world) wantATakeover(who string) {
	w.Helper()
	if asked := w.front.Asked(who, 0); !slices.Equal(asked, []string{"probe", "watch"}) {
		w.Errorf("%s has asked the API server for %q, want one object and a watch", who, asked)
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
	w.OK(err)
	w.address = l.Addr().String()
	w.OK(l.Close())
	port := l.Addr().(*net.TCPAddr).Port
	// With everysec, a server may confirm a write while it waits for the disk, before the write is in its file.
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
	w.OK(err)
	w.Await("the Valkey server does not answer", func() bool {
		c, err := dial(w.address)
		if err != nil {
			return false
		}
		defer c.Close()
		return c.Do(w.Context(), c.B().Ping().Build()).Error() == nil // it has read its file
	})
}

func dial(address string) (client.Client, error) {
	return client.NewClient(client.ClientOption{InitAddress: []string{address}, DisableCache: true, ForceSingleClient: true})
}

// do sends a command to the Valkey server, and returns its answer.
func (w *world) do(words ...string) string {
	w.Helper()
	c, err := dial(w.address)
	w.OK(err)
	defer c.Close()
	answer, err := c.Do(w.Context(), c.B().Arbitrary(words...).Build()).ToAny()
	w.OK(err)
	return fmt.Sprint(answer)
}

// sent returns how many bytes the Valkey server has sent.
func (w *world) sent() int {
	w.Helper()
	_, text, _ := strings.Cut(w.do("INFO", "stats"), "total_net_output_bytes:")
	text, _, _ = strings.Cut(text, "\r")
	n, err := strconv.Atoi(text)
	w.OK(err)
	return n
}

// stored returns the versions of all objects in the store, by name.
func (w *world) stored() map[string]string {
	w.Helper()
	c, err := dial(w.address)
	w.OK(err)
	defer c.Close()
	source, err := valkey.NewSource(c, &unstructured.Unstructured{}, role{Resource: w.resource}.identity())
	w.OK(err)
	list, err := source.ListWithContext(w.Context(), metav1.ListOptions{})
	w.OK(err)
	have := map[string]string{}
	for _, item := range list.(*metav1.List).Items {
		obj := item.Object.(metav1.Object)
		have[obj.GetName()] = obj.GetResourceVersion()
	}
	return have
}

// wantStored fails the test unless the store has what the API server has.
func (w *world) wantStored() {
	w.Helper()
	if got, want := w.stored(), w.state(); !maps.Equal(got, want) {
		w.Errorf("the store has %v, want %v", got, want)
	}
}

// object writes an object, and returns its UID.
func (w *world) object(name string) types.UID {
	w.Helper()
	w.writes++
	obj := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"n": int64(w.writes)}}}
	obj.SetGroupVersionKind(w.gvk)
	obj.SetName(name)
	written, err := w.objects.Apply(w.Context(), name, obj, metav1.ApplyOptions{FieldManager: "test"})
	w.OK(err)
	return written.GetUID()
}

func (w *world) remove(name string) {
	w.Helper()
	if err := w.objects.Delete(w.Context(), name, metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
		w.OK(err)
	}
}

// state returns the versions of all objects of the API server, by name.
func (w *world) state() map[string]string {
	w.Helper()
	list, err := w.objects.List(w.Context(), metav1.ListOptions{})
	w.OK(err)
	have := map[string]string{}
	for _, obj := range list.Items {
		have[obj.GetName()] = obj.GetResourceVersion()
	}
	return have
}

// actor is a process with a role.
type actor struct {
	*process.Process
	end func() // kills the process, and returns when all its messages are known

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
	stdout, out := io.Pipe()
	started, err := process.Self("valkey", r, out)
	w.OK(err)
	a := &actor{Process: started}
	var reading sync.WaitGroup
	reading.Go(func() {
		said := json.NewDecoder(stdout)
		for {
			var m message
			if err := said.Decode(&m); err != nil {
				_ = stdout.CloseWithError(err) // so that the process does not wait forever
				if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
					w.Errorf("%s sent an invalid message: %v", r.Name, err)
				}
				return
			}
			a.mu.Lock()
			a.said = append(a.said, m)
			a.mu.Unlock()
		}
	})
	a.end = func() {
		a.Kill()
		_ = out.Close()
		reading.Wait()
	}
	w.Cleanup(func() {
		a.end()
		if w.Failed() {
			w.Logf("%s:\n%s", r.Name, a.Log)
		}
	})
	return a
}

// all returns the messages of a process of one kind.
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

// has reports whether a process has sent a message.
func (a *actor) has(what func(message) bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.ContainsFunc(a.said, what)
}

func synced(m message) bool { return m.Synced }

// writer starts a writer, and waits until it has synced.
func (w *world) writer(r role) *actor {
	w.Helper()
	a := w.start(r)
	w.Await(r.Name+" has not synced", func() bool { return a.has(synced) })
	return a
}

func (w *world) stateOf(a *actor) *readerState {
	w.Helper()
	return w.ask(a, "state")
}

func (w *world) ask(a *actor, what string) (s *readerState) {
	w.Helper()
	a.mu.Lock()
	before := len(a.said)
	a.mu.Unlock()
	_, err := io.WriteString(a.In, what+"\n")
	w.OK(err)
	w.Await("a reader does not answer", func() bool {
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
