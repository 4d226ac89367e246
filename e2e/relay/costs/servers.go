package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/customcacheinformer/informer/e2e/apiserver"
	"github.com/customcacheinformer/informer/e2e/internal/front"
	"github.com/customcacheinformer/informer/e2e/internal/process"
	"github.com/customcacheinformer/informer/internal/lab"
	"github.com/customcacheinformer/informer/relay"
	"github.com/customcacheinformer/informer/store"
	"github.com/customcacheinformer/informer/store/disk"
)

// figures are those that a server reports of its process.
type figures struct {
	CPU              float64 // seconds since its start
	Memory, Resident float64 // live heap and stacks; and what it has of the system
	Watches          int     // of Pods, that clients have open
	Received         int64   // bytes, from the API server
}

// serveAPI is an API server until the standard input ends.
func serveAPI(struct{}) error {
	server, err := apiserver.StartWithPods(context.Background())
	if err != nil {
		return err
	}
	defer server.Stop()
	if err := lab.Tell(process.AddressOf(server.Config())); err != nil {
		return err
	}
	return lab.Answer(func(question string) (figures, error) { return figuresOf(question == "heap") })
}

// serveRelay is a relay of Pods, with a file, until the standard input ends. Every client may read.
func serveRelay(from process.Address) (err error) {
	dir, err := os.MkdirTemp("", "relay-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	store, err := disk.Open(filepath.Join(dir, "pods.db"), &corev1.Pod{}, disk.Options{
		Identity: store.Identity{Cluster: "measured"}, Durability: disk.SurviveProcess,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	pods := relay.Resource{
		GroupVersionResource: corev1.SchemeGroupVersion.WithResource("pods"), Kind: "Pod", Namespaced: true, Store: store,
	}
	pods.SetKubernetesFields()
	received := &count{}
	serving, config, err := front.Local()
	if err != nil {
		return err
	}
	r, err := relay.New(relay.Options{Upstream: counted(from, received), Resources: []relay.Resource{pods}, Serving: serving})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	defer func() { stop(); err = errors.Join(err, <-ended) }()
	if err := lab.Poll(ctx, often, func() (bool, error) { return r.Ready() == nil, nil }); err != nil {
		return fmt.Errorf("%w: %w", err, r.Ready())
	}
	if err := lab.Tell(process.AddressOf(config)); err != nil {
		return err
	}
	return lab.Answer(func(question string) (figures, error) {
		f, err := figuresOf(question == "heap")
		f.Received = received.Load()
		return f, err
	})
}

// figuresOf returns the figures of this process. Those of the heap need collections.
func figuresOf(heap bool) (f figures, err error) {
	f.CPU, f.Resident = lab.CPU().Seconds(), lab.Memory(lab.Resident)
	if heap {
		live, stacks := lab.Settled()
		f.Memory = live + stacks
	}
	f.Watches, err = watches()
	return f, err
}

// watches returns how many watches of Pods clients have open at the server of this process.
func watches() (sum int, err error) {
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		return 0, err
	}
	for _, family := range families {
		if family.GetName() != "apiserver_longrunning_requests" {
			continue
		}
		for _, metric := range family.GetMetric() {
			labels := map[string]string{}
			for _, label := range metric.GetLabel() {
				labels[label.GetName()] = label.GetValue()
			}
			if labels["verb"] == "WATCH" && labels["resource"] == "pods" {
				sum += int(metric.GetGauge().GetValue())
			}
		}
	}
	return sum, nil
}
