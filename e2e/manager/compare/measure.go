package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/customcacheinformer/informer/e2e/apiserver"
	"github.com/customcacheinformer/informer/e2e/internal/process"
	"github.com/customcacheinformer/informer/e2e/manager/api"
	"github.com/customcacheinformer/informer/internal/lab"
)

// These are the numbers of goroutines that write at once.
const creators, writers = 8, 4

const namespace = "default"

var group = schema.GroupVersion{Group: "compare.example.com", Version: "v1"}

// work is the amount of work for a manager.
type work struct {
	Objects, Controllers, Updates int
	Rate                          int  // of the updates in a second, 0 for no limit
	List                          bool // reconcilers list all objects for each update
}

// subject is a thing to measure: a side with controllers, or with handlers that only count.
// The latter shows what the informer costs by itself.
type subject struct {
	Side     string
	Handlers bool
}

// results holds the figures of each round.
type results map[subject][]figures

// measureAll starts an API server, fills it, and measures every subject in each round.
func measureAll(ctx context.Context, c config) (results, error) {
	server, err := apiserver.Start(ctx)
	if err != nil {
		return nil, err
	}
	defer server.Stop()
	if _, err := server.Install(ctx, apiserver.Kind{GroupVersionKind: group.WithKind("Widget")}); err != nil {
		return nil, err
	}
	direct, err := client.New(server.Config(), client.Options{Scheme: api.Scheme(group), Mapper: api.Mapper(group)})
	if err != nil {
		return nil, err
	}
	w := &world{config: c, server: server, client: direct}
	lab.Progress("creating %d objects", c.Objects)
	if err := w.fill(ctx); err != nil {
		return nil, err
	}

	var subjects []subject
	for _, handlers := range []bool{false, true} {
		if handlers && c.List {
			break // handlers list nothing
		}
		for _, s := range sides {
			subjects = append(subjects, subject{s.name, handlers})
		}
	}
	found := results{}
	return found, lab.Rounds(c.rounds, subjects, func(_ int, s subject) error {
		f, err := w.measure(ctx, s)
		found[s] = append(found[s], f)
		return err
	})
}

func (s subject) String() string {
	if s.Handlers {
		return s.Side + ", handlers only"
	}
	return s.Side
}

// world is the API server with the client that writes to it.
type world struct {
	config
	server *apiserver.Server
	client client.Client
}

// fill creates the objects, of about 1 KiB each.
func (w *world) fill(ctx context.Context) error {
	return lab.Divide(w.Objects, creators, func(i int) error {
		return w.client.Create(ctx, &api.Widget{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name(i), Labels: map[string]string{"app": name(i)}},
			Spec:       api.Spec{Color: "none", Notes: strings.Repeat("x", 600)},
		})
	})
}

// update writes the updates, to one object after the other. Each writes the time as a size. update returns the
// generation of each object afterwards.
func (w *world) update(ctx context.Context) (map[int]int64, error) {
	var mu sync.Mutex // protects generations
	generations := map[int]int64{}
	begun := time.Now()
	err := lab.Divide(w.Updates, writers, func(i int) error {
		obj := &api.Widget{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name(i % w.Objects)}}
		if w.Rate > 0 {
			time.Sleep(time.Until(begun.Add(time.Duration(i) * time.Second / time.Duration(w.Rate))))
		}
		patch := fmt.Appendf(nil, `{"spec":{"size":%d}}`, time.Now().UnixNano())
		if err := w.client.Patch(ctx, obj, client.RawPatch(types.MergePatchType, patch)); err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		generations[i%w.Objects] = max(generations[i%w.Objects], obj.Generation)
		return nil
	})
	return generations, err
}

// measure measures one manager at start, during updates and while idle.
func (w *world) measure(ctx context.Context, s subject) (f figures, err error) {
	c, err := lab.StartChild(ctx, "manager", task{w.work, s, process.AddressOf(w.server.Config())})
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, c.End()) }()
	if err := c.Ask(request{Op: opStart}, &f.Start); err != nil {
		return f, err
	}
	if err := c.Ask(request{Op: opBegin}, &f.Update); err != nil {
		return f, err
	}
	begun := time.Now()
	generations, err := w.update(ctx)
	if err != nil {
		return f, err
	}
	f.Writing = time.Since(begun).Seconds()
	if err := c.Ask(request{Op: opReach, Generations: generations}, &f.Update); err != nil {
		return f, err
	}
	return f, c.Ask(request{Op: opIdle, Idle: w.idle}, &f.Idle)
}

// The name of an object is its number after namePrefix.
const namePrefix = "widget-"

func name(i int) string { return fmt.Sprintf("%s%06d", namePrefix, i) }
