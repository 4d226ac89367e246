package source_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
)

// cutting cuts bodies at random.
type cutting struct {
	next http.RoundTripper
	mu   *sync.Mutex
	r    *rand.Rand
}

type cutBody struct {
	io.ReadCloser
	left int
}

func (b *cutBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, io.ErrUnexpectedEOF
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left, 97)])
	b.left -= n
	return n, err
}

func (c cutting) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := c.next.RoundTrip(req)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil && c.r.IntN(3) == 0 {
		resp.Body = &cutBody{resp.Body, c.r.IntN(3000)}
	}
	return resp, err
}

func TestRandomHistoriesWithObjectsThatCannotBeDecoded(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { randomHistory(t, seed) })
		})
	}
}

func randomHistory(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	names := []string{"a", "b", "c", "d", "e", "f"}
	src := informertest.NewSource(object("first", "1"))
	server := map[string]string{"first": "1"}
	kept := map[string]bool{} // the informer has had a state of it, and it was not deleted
	change := func(n int) {
		name := names[r.IntN(len(names))]
		switch r.IntN(6) {
		case 0:
			_, _ = src.Delete(keyOf(name))
			delete(server, name)
			delete(kept, name)
		case 1, 2:
			src.Apply(object(name, testkit.Undecodable))
			server[name] = testkit.Undecodable
		default:
			v := fmt.Sprint(n)
			src.Apply(object(name, v))
			server[name] = v
		}
	}
	for n := range 8 {
		change(n)
	}
	w := &testkit.Wire{Source: src}
	config := w.Config()
	if seed%2 == 0 {
		config.ContentType = runtime.ContentTypeJSON
	}
	faults := &sync.Mutex{}
	inner := config.Transport
	config.Transport = cutting{inner, faults, rand.New(rand.NewPCG(seed, 2))}
	opts := anyOptions{Name: "maps",
		WatchList: []informer.WatchListMode{informer.WatchListOn, informer.WatchListOff}[seed/2%2],
		Intake:    []informer.IntakeMode{informer.IntakeWhole, informer.IntakeEarly}[seed/4%2],
		Queue:     []informer.QueueKind{informer.QueueRealFIFO, informer.QueueDeltaFIFO}[seed/8%2],
	}
	if seed%3 == 0 {
		opts.PageSize = 2
	}
	opts.ErrorHandler = func(context.Context, error) {}
	inf, err := informer.NewFrom(informer.ListWatch(kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps("")), opts)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	shadow := map[string]string{}
	_, err = inf.AddWatcher(informer.WatcherFunc[informer.AnyObject](func(_ context.Context, e informer.Event[informer.AnyObject]) error {
		mu.Lock()
		defer mu.Unlock()
		switch e.Type {
		case informer.EventDeleted:
			if _, known := shadow[e.Old.GetName()]; !known {
				t.Errorf("deleted twice: %s", e.Old.GetName())
			}
			delete(shadow, e.Old.GetName())
		case informer.EventAdded:
			if _, known := shadow[e.New.GetName()]; known {
				t.Errorf("added twice: %s", e.New.GetName())
			}
			shadow[e.New.GetName()] = e.New.(*corev1.ConfigMap).Data["value"]
		default:
			shadow[e.New.GetName()] = e.New.(*corev1.ConfigMap).Data["value"]
		}
		return nil
	}), informer.WatcherOptions{})
	if err != nil {
		t.Fatal(err)
	}
	runUntilTheEnd(t, func(ctx context.Context) { _ = inf.Run(ctx) })
	for n := range 60 {
		for range r.IntN(8) {
			change(100 + n)
		}
		switch r.IntN(6) {
		case 0:
			src.Expire()
			src.Disconnect()
		case 1:
			src.Disconnect()
		case 2:
			sleepBubble(time.Duration(r.IntN(40_000)) * time.Millisecond)
		case 3:
			sleepBubble(time.Duration(r.IntN(40)) * time.Millisecond)
		}
		if n%15 == 14 {
			sleepBubble(time.Hour)
			src.Apply(object("last", fmt.Sprint(n)))
			server["last"] = fmt.Sprint(n)
			sleepBubble(time.Hour)
			mu.Lock()
			got := map[string]string{}
			objs, _ := inf.List("", nil)
			for _, obj := range objs {
				got[obj.GetName()] = obj.(*corev1.ConfigMap).Data["value"]
			}
			if !maps.Equal(got, shadow) {
				t.Errorf("store %v, events %v", got, shadow)
			}
			mu.Unlock()
			var bad []string
			for name, v := range server {
				if v == testkit.Undecodable {
					bad = append(bad, "default/"+name)
				} else if got[name] != v {
					t.Errorf("step %d: %s is %q, want %q", n, name, got[name], v)
				}
			}
			for name := range kept {
				if _, exists := got[name]; !exists {
					t.Errorf("step %d: %s has lost its last state", n, name)
				}
			}
			for name := range got {
				kept[name] = true
				if _, exists := server[name]; !exists {
					t.Errorf("step %d: %s was not deleted", n, name)
				}
			}
			slices.Sort(bad)
			if h := inf.Health(); !slices.Equal(h.UndecodableKeys, bad) || h.Decoding.Left > 0 {
				t.Errorf("step %d: undecodable %q, want %q; %+v", n, h.UndecodableKeys, bad, h.Decoding)
			}
		}
	}
}
