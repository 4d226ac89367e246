package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/customcacheinformer/informer/e2e/apiserver"
	"github.com/customcacheinformer/informer/e2e/internal/process"
	"github.com/customcacheinformer/informer/internal/lab"
)

// The figures of a replica. All begin with its process.
const (
	received = iota // bytes
	decoded
	leaseWrites
	cpu     // in seconds
	heap    // live
	objects // in its cache
	owned   // buckets
	kinds
)

type figures [kinds]float64

func mean(all []figures) (sum figures) {
	for _, f := range all {
		for i := range f {
			sum[i] += f[i] / float64(len(all))
		}
	}
	return sum
}

func (f figures) minus(other figures) figures {
	for i := range f {
		f[i] -= other[i]
	}
	return f
}

// costs are the means over the replicas.
type costs struct {
	start, writing figures // until each replica has its part; and while objects were changed
	heap           float64
	most           float64 // objects that one replica has
}

// replica is a process, and the proxy between it and the API server.
type replica struct {
	*lab.Child
	proxy *apiserver.Proxy
}

// replicas are processes that share the work.
type replicas []replica

// often is the time between two looks at something that will come.
const often = 50 * time.Millisecond

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
		c.most = max(c.most, f[objects])
	}
	c.heap = mean(now)[heap]
	before, err := all.ask("state")
	if err != nil {
		return c, err
	}
	changes := w.changes
	if err := lab.Pace(ctx, w.writes, w.during, func() error { return w.change(ctx) }); err != nil {
		return c, err
	}
	want := float64(w.changes - changes)
	if m == served {
		want /= float64(n) // each change goes to one replica
	}
	err = lab.Poll(ctx, often, func() (bool, error) {
		now, err = all.ask("state")
		c.writing = mean(now).minus(mean(before))
		return err == nil && c.writing[decoded] >= want, err
	})
	if err != nil {
		return c, errors.Join(err, fmt.Errorf("%.0f of %.0f changes came", c.writing[decoded], want))
	}
	return c, nil
}

// share starts replicas, and waits until each has its part. It returns those that it has started, and
// their figures.
func (w *world) share(ctx context.Context, m mode, n int) (all replicas, now []figures, err error) {
	for i := range n {
		config := w.server.Config()
		if m == ignored {
			config = w.other
		}
		proxy, err := apiserver.NewProxy(config)
		if err != nil {
			return all, nil, err
		}
		r, err := lab.StartChild(ctx, "replica", settings{fmt.Sprint("replica-", i), m, process.AddressOf(proxy.Config()), w.widget})
		if err != nil {
			proxy.Close()
			return all, nil, err
		}
		all = append(all, replica{r, proxy})
	}
	err = lab.Poll(ctx, often, func() (bool, error) {
		now, err = all.ask("state")
		return err == nil && w.shared(m, now), err
	})
	if err != nil {
		err = fmt.Errorf("%w: the replicas do not share the work: %+v", err, now)
	}
	return all, now, err
}

// shared reports whether each replica has its part of the buckets, and the objects that it needs. A replica
// whose informer is yet to list the new part has more objects, or none, and the sum may be right anyway.
func (w *world) shared(m mode, all []figures) bool {
	sum, each := 0, w.objects
	for _, f := range all {
		has, owns := int(f[objects]), int(f[owned])
		sum += has
		if divided := m == ignored || m == served; divided && has*len(all) > w.objects*3/2 {
			return false
		}
		if m != clientGo && (owns < buckets/len(all) || owns > (buckets+len(all)-1)/len(all)) {
			return false
		}
	}
	if m == clientGo || m == whole {
		each *= len(all)
	}
	return sum == each
}

func (all replicas) ask(question string) ([]figures, error) {
	answers := make([]figures, len(all))
	for i, r := range all {
		if err := r.Ask(question, &answers[i]); err != nil {
			return nil, err
		}
		answers[i][received] = float64(r.proxy.Sent())
	}
	return answers, nil
}

func (all replicas) end() (err error) {
	for _, r := range all {
		err = errors.Join(err, r.End())
		r.proxy.Close()
	}
	return err
}
