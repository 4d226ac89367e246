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

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
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
	src := informertest.NewSource(object("first", "1"))
	change := func(n int) {
		name := string("abcdef"[r.IntN(6)])
		switch r.IntN(6) {
		case 0:
			_, _ = src.Delete(keyOf(name))
		case 1, 2:
			src.Apply(object(name, testkit.Undecodable))
		default:
			src.Apply(object(name, fmt.Sprint(n)))
		}
	}
	for n := range 8 {
		change(n)
	}
	config := (&testkit.Wire{Source: src}).Config()
	if seed%2 == 0 {
		config.ContentType = runtime.ContentTypeJSON
	}
	config.Transport = cutting{config.Transport, &sync.Mutex{}, rand.New(rand.NewPCG(seed, 2))}
	opts := anyOptions{
		Name:         "maps",
		WatchList:    []informer.WatchListMode{informer.WatchListOn, informer.WatchListOff}[seed/2%2],
		Intake:       []informer.IntakeMode{informer.IntakeWhole, informer.IntakeEarly}[seed/4%2],
		Queue:        []informer.QueueKind{informer.QueueRealFIFO, informer.QueueDeltaFIFO}[seed/8%2],
		ErrorHandler: ignore,
	}
	if seed%3 == 0 {
		opts.PageSize = 2
	}
	inf := must(informer.NewFrom(informer.ListWatch(kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps("")), opts))
	var seen informertest.Recorder[informer.AnyObject]
	must(inf.AddWatcher(&seen, informer.WatcherOptions{}))
	runUntilTheEnd(t, func(ctx context.Context) { _ = inf.Run(ctx) })

	kept := map[types.UID]bool{} // the informer has had a state of it
	check := func(step int) {
		t.Helper()
		got := values(maps.Collect(inf.All()))
		if told := values(seen.View()); !maps.Equal(got, told) || seen.Err() != nil {
			t.Errorf("step %d: store %v, events %v, %v", step, got, told, seen.Err())
		}
		var bad []string
		exist := map[string]bool{}
		for _, obj := range src.Objects() {
			exist[obj.Name] = true
			value, stored := got[obj.Name]
			if want := obj.Data["value"]; want == testkit.Undecodable {
				bad = append(bad, "default/"+obj.Name)
			} else if value != want {
				t.Errorf("step %d: %s is %q, want %q", step, obj.Name, value, want)
			}
			if kept[obj.UID] && !stored {
				t.Errorf("step %d: %s has lost its last state", step, obj.Name)
			}
			kept[obj.UID] = stored
			if last, exists, err := inf.Get(keyOf(obj.Name)); err != nil || exists && last.GetUID() != obj.UID {
				t.Errorf("step %d: %s is an object that was deleted (%v)", step, obj.Name, err)
			}
		}
		for name := range got {
			if !exist[name] {
				t.Errorf("step %d: %s was not deleted", step, name)
			}
		}
		if h := inf.Health(); !slices.Equal(h.UndecodableKeys, bad) || h.Decoding.Left > 0 {
			t.Errorf("step %d: undecodable %q, want %q; %+v", step, h.UndecodableKeys, bad, h.Decoding)
		}
	}
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
			sleepBubble(time.Hour)
			check(n)
		}
	}
}
