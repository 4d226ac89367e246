package relay_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/relay"
)

// names returns options of a relay of some names in a cluster.
func names(t *testing.T, c *cluster, all ...string) relay.Options {
	opts := options(t)
	opts.Upstream, opts.Resources, opts.Names = &rest.Config{Host: c.URL, QPS: -1}, nil, all
	return opts
}

// begin makes a relay and runs it. It returns the error of Run when that has returned.
func begin(t *testing.T, opts relay.Options, afterNew func()) (*outage, <-chan error) {
	t.Helper()
	r, err := relay.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	afterNew()
	ctx, cancel := context.WithCancel(context.Background())
	result, done := make(chan error, 1), make(chan struct{})
	go func() { defer close(done); result <- r.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return &outage{T: t, relay: r}, result
}

func TestAResourceUnderTwoNamesIsServedOnce(t *testing.T) {
	prepared := 0
	opts := names(t, newCluster(t), "widgets.example.com", "widgets.v1.example.com")
	opts.Prepare = func(context.Context, *relay.Resource) error { prepared++; return nil }
	o, _ := begin(t, opts, func() {})
	o.await("the relay does not begin", func() bool { return o.relay.Ready() == nil })
	if absent := o.relay.Absent(); prepared != 1 || fmt.Sprint(absent) != "map[widgets.v1.example.com:<nil>]" {
		t.Errorf("Prepare was called %d times; Absent: %v", prepared, absent)
	}
}

func TestTheOptionsOfARelayAreCopied(t *testing.T) {
	opts := names(t, newCluster(t), "widgets.example.com")
	o, _ := begin(t, opts, func() { opts.Names[0], opts.Upstream.Host = "none.example.com", "http://127.0.0.1:1" })
	o.await("the relay does not begin", func() bool { return o.relay.Ready() == nil })
}

// The name leads to the resource whose store has failed, so nothing else can follow.
func TestARelayWhoseStoreHasFailedEndsWhenTheLastNameIsFound(t *testing.T) {
	store := informertest.NewDurable()
	owner, err := informer.NewFrom(informertest.NewSource[*corev1.ConfigMap](), informer.Options[*corev1.ConfigMap]{Durable: store})
	if err != nil {
		t.Fatal(err)
	}
	informertest.Run(t, owner)
	c := newCluster(t)
	c.fail("discovery", "503")
	opts := names(t, c, "widgets.example.com")
	widgets := resourceOf("widgets")
	widgets.Store = store
	opts.Resources = []relay.Resource{widgets}
	o, result := begin(t, opts, func() {})
	const reason = "the same Options.Durable"
	o.await("the store does not fail", func() bool { return strings.Contains(fmt.Sprint(o.absent("widgets")), reason) })
	c.fail("discovery", "")
	select {
	case err := <-result:
		if err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("Run: %v, want an error about the store", err)
		}
	case <-time.After(time.Minute):
		t.Error("Run does not return")
	}
}

// A relay that stops ends the requests of its informers itself.
func TestTheEndOfARelayIsNotReportedAsAFailure(t *testing.T) {
	r, err := relay.New(names(t, newCluster(t), "widgets.example.com"))
	if err != nil {
		t.Fatal(err)
	}
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), logger))
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	(&outage{T: t, relay: r}).await("the relay does not begin", func() bool { return r.Ready() == nil })
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if log := logger.GetSink().(ktesting.Underlier).GetBuffer().String(); strings.Contains(log, "reports an error") {
		t.Errorf("the log has:\n%s", log)
	}
}
