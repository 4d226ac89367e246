package e2e_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/e2e/apiserver"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/kinds"
)

// manyKindsVariable names the environment variable that makes the test program the server of TestTheCostOfManyKinds.
const manyKindsVariable = "E2E_MANY_KINDS"

const (
	manyKinds   = 500
	usedKinds   = 50 // the first ones
	objectsEach = 20
	schemaSize  = 50 << 10 // of the CRD of every second kind
)

// access is what a client needs of the server.
type access struct {
	Host, Token string
	CA          []byte
}

func manyKind(n int) *kind {
	k := &kind{plural: fmt.Sprintf("thing%ds", n), storage: "v1"}
	if n%2 == 0 {
		k.note = strings.Repeat("The text of a schema. ", schemaSize/44) // in both versions
	}
	return k
}

// serveManyKinds is an API server with the kinds, until its standard input ends. It prints its access when the kinds are there.
func serveManyKinds(ctx context.Context) error {
	s, err := apiserver.Start(ctx)
	if err != nil {
		return err
	}
	defer s.Stop()
	client, err := dynamic.NewForConfig(s.Config())
	if err != nil {
		return err
	}
	crds, err := clientset.NewForConfig(s.Config())
	if err != nil {
		return err
	}
	if err := installServices(ctx, s); err != nil {
		return err
	}
	var all errgroup.Group
	all.SetLimit(8)
	for n := range manyKinds {
		all.Go(func() error {
			crd := manyKind(n).definition("many.example.com", fmt.Sprintf("Thing%d", n))
			if n >= usedKinds {
				_, err := crds.ApiextensionsV1().CustomResourceDefinitions().Create(ctx, crd, metav1.CreateOptions{})
				return err
			}
			gvr, err := s.InstallDefinition(ctx, crd)
			for i := 0; i < objectsEach && err == nil; i++ {
				obj := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"size": int64(i)}}}
				obj.SetGroupVersionKind(gvr.GroupVersion().WithKind(crd.Spec.Names.Kind))
				obj.SetName(name(i))
				_, err = client.Resource(gvr).Namespace(namespace).Create(ctx, obj, metav1.CreateOptions{})
			}
			return err
		})
	}
	if err := all.Wait(); err != nil {
		return err
	}
	config := s.Config()
	if err := json.NewEncoder(os.Stdout).Encode(access{config.Host, config.BearerToken, config.CAData}); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// startManyKinds starts the server in another process, so that the figures of this one are those of the clients.
func startManyKinds(t *testing.T) (a access) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program)
	cmd.Env, cmd.Stderr = append(os.Environ(), manyKindsVariable+"=1"), os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := in.Close(); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &a)
	}
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// spent are the requests through a transport, and the watches that are open.
type spent struct{ requests, watches atomic.Int64 }

func (a access) config(c *spent) *rest.Config {
	config := &rest.Config{Host: a.Host, BearerToken: a.Token, TLSClientConfig: rest.TLSClientConfig{CAData: a.CA}, QPS: -1}
	config.Wrap(informer.Transport)
	config.Wrap(func(rt http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			c.requests.Add(1)
			resp, err := rt.RoundTrip(req)
			if err == nil && req.URL.Query().Get("watch") != "" {
				c.watches.Add(1)
				resp.Body = &countedBody{ReadCloser: resp.Body, closed: sync.OnceFunc(func() { c.watches.Add(-1) })}
			}
			return resp, err
		})
	})
	return config
}

type countedBody struct {
	io.ReadCloser
	closed func()
}

func (b *countedBody) Close() error {
	b.closed()
	return b.ReadCloser.Close()
}

// cost is what informers take when they have synced.
type cost struct {
	heap, requests, watches int64
	goroutines              int
}

// costOf measures what run starts. run returns a function that ends it, and how many objects there are. After lasts, it counts the requests.
func (a access) costOf(t *testing.T, watches int64, lasts time.Duration, run func(*rest.Config) (stop func(), objects func() int)) cost {
	t.Helper()
	c := &spent{}
	heap, goroutines := heapNow(), runtime.NumGoroutine()
	begun := time.Now()
	stop, objects := run(a.config(c))
	defer stop()
	for deadline := time.Now().Add(patience); objects() != usedKinds*objectsEach || c.watches.Load() < watches || time.Since(begun) < lasts; <-time.After(10 * time.Millisecond) {
		if time.Now().After(deadline) { // the server runs in real time
			t.Fatalf("%d objects, %d watches", objects(), c.watches.Load())
		}
	}
	return cost{heapNow() - heap, c.requests.Load(), c.watches.Load(), runtime.NumGoroutine() - goroutines}
}

// heapNow returns the size of the heap when it has settled: what earlier tests have left is freed with a delay.
func heapNow() (heap int64) {
	for range 50 {
		before := heap
		for range 3 {
			runtime.GC()
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		if heap = int64(m.HeapAlloc); max(heap-before, before-heap) < 64<<10 {
			break
		}
		<-time.After(200 * time.Millisecond) // the garbage is freed in real time
	}
	return heap
}

// TestTheCostOfManyKinds compares a set over 500 CRDs, of which it reads 50, with 50 informers that are made by hand.
func TestTheCostOfManyKinds(t *testing.T) {
	if testing.Short() {
		t.Skip("it makes 500 CRDs, which takes half a minute")
	}
	begun, a := time.Now(), startManyKinds(t)
	t.Logf("%d CRDs after %v", manyKinds, time.Since(begun).Round(time.Millisecond))
	ignore := func(context.Context, error) {}
	byHand := func(config *rest.Config) (func(), func() int) {
		client, err := dynamic.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		var stops []func()
		var all []*informer.CustomCacheInformer[object]
		for n := range usedKinds {
			gvr := schema.GroupVersionResource{Group: "many.example.com", Version: "v1", Resource: manyKind(n).plural}
			inf, err := informer.NewFrom(informer.ListWatch(client.Resource(gvr)), informer.Options[object]{ErrorHandler: ignore})
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, inf)
			stops = append(stops, informertest.Run(t, inf))
		}
		return func() {
				for _, stop := range stops {
					stop()
				}
			}, func() (n int) {
				for _, inf := range all {
					for range inf.All() {
						n++
					}
				}
				return n
			}
	}
	bySet := func(config *rest.Config) (func(), func() int) {
		set, err := kinds.New(kindsClients(t, config), kinds.Options[object]{ErrorHandler: ignore, Informer: informer.Options[object]{ErrorHandler: ignore}})
		if err != nil {
			t.Fatal(err)
		}
		for n := range usedKinds {
			if _, err := set.Acquire(kinds.Kind{Group: "many.example.com", Kind: fmt.Sprintf("Thing%d", n)}); err != nil {
				t.Fatal(err)
			}
		}
		return runSet(t, set), func() (n int) {
			for range set.Informer().All() {
				n++
			}
			return n
		}
	}
	const lasts = time.Minute
	a.costOf(t, usedKinds, 0, byHand) // the first one also pays for what all share
	hand := a.costOf(t, usedKinds, 0, byHand)
	set := a.costOf(t, usedKinds+2, lasts, bySet)
	t.Logf("by hand: %+v", hand)
	t.Logf("a set:   %+v, the requests in %v", set, lasts)
	limit := hand.heap*11/10 + 4<<20
	for tries := 0; tries < 3 && set.heap > limit; tries++ { // the API server of the other tests is in this process, too, and may have grown meanwhile
		again := a.costOf(t, usedKinds+2, 0, bySet)
		t.Logf("again:   %+v", again)
		set.heap = min(set.heap, again.heap)
	}
	if set.heap > limit {
		t.Errorf("the set has %d bytes, want at most %d", set.heap, limit)
	}
	if limit := hand.goroutines * 11 / 10; set.goroutines > limit {
		t.Errorf("the set has %d goroutines, want at most %d", set.goroutines, limit)
	}
	if limit := hand.watches * 11 / 10; set.watches > limit {
		t.Errorf("the set has %d watches, want at most %d", set.watches, limit)
	}
	if set.requests > 106 {
		t.Errorf("the set has made %d requests in %v, want at most 106", set.requests, lasts)
	}
}
