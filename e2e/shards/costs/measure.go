package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/customcacheinformer/informer/e2e/apiserver"
)

// costs are the means over the replicas.
type costs struct {
	start, writing figures // until each replica has its part; and while objects were changed
	heap           float64
	most           float64 // objects that one replica has
}

// replicas are processes that share the work.
type replicas []*child

// measure starts replicas, and measures them.
func (w *world) measure(ctx context.Context, m mode, n int) (c costs, err error) {
	if err := w.leases.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		return c, err
	}
	if m == ignored || m == served {
		// The first replica of a new set counts the objects of all namespaces, to cut the ranges.
		first, alone, err := w.share(ctx, m, 1)
		if err = errors.Join(err, first.end()); err != nil {
			return c, err
		}
		w.first = alone[0]
	}
	all, now, err := w.share(ctx, m, n)
	defer func() { err = errors.Join(err, all.end()) }()
	if err != nil {
		return c, err
	}
	c.start = mean(now)
	if now, err = all.ask("heap"); err != nil {
		return c, err
	}
	for _, f := range now {
		c.most = max(c.most, float64(f.Objects))
	}
	c.heap = mean(now).Heap
	before, err := all.ask("state")
	if err != nil {
		return c, err
	}
	changes := w.changes
	if err := w.change(ctx); err != nil {
		return c, err
	}
	told := float64(w.changes - changes)
	if m == served {
		told /= float64(n) // each change goes to one replica
	}
	err = poll(ctx, func() (bool, error) {
		now, err = all.ask("state")
		c.writing = less(mean(now), mean(before))
		return err == nil && c.writing.Decoded >= told, err
	})
	if err != nil {
		return c, errors.Join(err, fmt.Errorf("%.0f of %.0f changes came", c.writing.Decoded, told))
	}
	return c, nil
}

// share starts replicas, and waits until each has its part. It returns those that it has started, and
// their figures.
func (w *world) share(ctx context.Context, m mode, n int) (all replicas, now []figures, err error) {
	for i := range n {
		r, err := w.start(m, i)
		if err != nil {
			return all, nil, err
		}
		all = append(all, r)
	}
	err = poll(ctx, func() (bool, error) {
		now, err = all.ask("state")
		return err == nil && w.shared(m, now), err
	})
	if err != nil {
		err = fmt.Errorf("%w: the replicas do not share the work: %+v", err, now)
	}
	return all, now, err
}

// start starts a replica.
func (w *world) start(m mode, n int) (*child, error) {
	config := w.server.Config()
	if m == ignored {
		config = w.other
	}
	proxy, err := apiserver.NewProxy(config)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(settings{Name: fmt.Sprint("replica-", n), Mode: m, Server: addressOf(proxy.Config()), Widget: w.widget})
	if err != nil {
		return nil, err
	}
	r, err := startChild("replica", string(text))
	if err != nil {
		proxy.Close()
		return nil, err
	}
	r.proxy = proxy
	return r, nil
}

// shared reports whether each replica has its part of the buckets, and the objects that it needs. A replica
// whose informer is yet to list the new part has more objects, or none, and the sum may be right anyway.
func (w *world) shared(m mode, all []figures) bool {
	objects := 0
	for _, f := range all {
		objects += f.Objects
		if divided := m == ignored || m == served; divided && f.Objects*len(all) > w.objects*3/2 {
			return false
		}
		if m != clientGo && (f.Owned < buckets/len(all) || f.Owned > (buckets+len(all)-1)/len(all)) {
			return false
		}
	}
	if m == clientGo || m == whole {
		objects /= len(all)
	}
	return objects == w.objects
}

func (all replicas) ask(question string) (answers []figures, err error) {
	for _, r := range all {
		f, err := r.ask(question)
		if err != nil {
			return nil, err
		}
		answers = append(answers, f)
	}
	return answers, nil
}

func (all replicas) end() (err error) {
	for _, r := range all {
		err = errors.Join(err, r.end())
	}
	return err
}

func mean(all []figures) (sum figures) {
	for _, f := range all {
		sum.Received += f.Received
		sum.Decoded += f.Decoded
		sum.LeaseWrites += f.LeaseWrites
		sum.CPU += f.CPU
		sum.Heap += f.Heap
	}
	n := float64(len(all))
	return figures{Received: sum.Received / n, Decoded: sum.Decoded / n, LeaseWrites: sum.LeaseWrites / n, CPU: sum.CPU / n, Heap: sum.Heap / n}
}

// less returns a-b of figures that rise.
func less(a, b figures) figures {
	return figures{Received: a.Received - b.Received, Decoded: a.Decoded - b.Decoded, LeaseWrites: a.LeaseWrites - b.LeaseWrites, CPU: a.CPU - b.CPU}
}
