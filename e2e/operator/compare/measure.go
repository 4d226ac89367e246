package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	netv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/customcacheinformer/informer/e2e/operator/compare/probe"
	"github.com/customcacheinformer/informer/e2e/operator/internal/cluster"
	"github.com/customcacheinformer/informer/examples/operator/website"
	"github.com/customcacheinformer/informer/internal/lab"
)

// figures holds the measurements of one operator in one round.
type figures struct{ Create, Restart, Move, Idle phase }

// results holds the figures of each round by the name of the side, and the machine with the versions of the
// modules in the program of the first side.
type results struct {
	rounds  map[string][]figures
	machine string
}

// measureAll measures all sides in each round and checks that they reach the same end state.
func measureAll(ctx context.Context, c config) (found results, err error) {
	dir, err := os.MkdirTemp("", "compare-")
	if err != nil {
		return found, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	built := slices.Clone(sides)
	for i := range built {
		to := filepath.Join(dir, fmt.Sprint(i))
		if err := os.Mkdir(to, 0o700); err != nil {
			return found, err
		}
		if built[i].file, err = built[i].build(ctx, to); err != nil {
			return found, err
		}
	}
	found = results{map[string][]figures{}, lab.Machine(built[0].file, "k8s.io/client-go", "sigs.k8s.io/controller-runtime")}
	want := ""
	return found, lab.Rounds(c.rounds, built, func(_ int, s side) error {
		f, end, err := measure(ctx, c, s)
		if want = cmp.Or(want, end); err == nil && end != want {
			return fmt.Errorf("it reached another end state:\n%s\n\nwant\n%s", end, want)
		}
		found.rounds[s.name] = append(found.rounds[s.name], f)
		return err
	})
}

// measure takes one operator through all parts of the work, on an API server of its own. end
// describes all Websites and Ingresses at the end.
func measure(ctx context.Context, c config, of side) (f figures, end string, err error) {
	world, err := cluster.Start(ctx)
	if err != nil {
		return f, "", err
	}
	defer func() { err = errors.Join(err, world.Stop()) }()
	keys := make([]types.NamespacedName, c.sites)
	for i := range keys {
		keys[i] = types.NamespacedName{Namespace: "default", Name: fmt.Sprintf("site-%06d", i)}
	}
	if err := world.CreateSites(ctx, keys); err != nil {
		return f, "", err
	}
	if f.Create, err = create(ctx, c, world, of, keys); err != nil {
		return f, "", err
	}
	made, err := endState(world)
	if err != nil {
		return f, "", err
	}
	if f.Restart, f.Move, f.Idle, err = restart(ctx, c, world, of, keys); err != nil {
		return f, "", err
	}
	moved, err := endState(world)
	return f, made + moved, err
}

// create measures how a new operator does all the work.
func create(ctx context.Context, c config, world *cluster.Cluster, of side, keys []types.NamespacedName) (p phase, err error) {
	s, err := startSubject(ctx, world, of, c.workers)
	if err != nil {
		return p, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	if err := settled(ctx, world, keys, cluster.Host); err != nil {
		return p, err
	}
	return s.end(ctx)
}

// restart measures how an operator finds out that all work is done, then how it moves all
// Websites to other hosts, and then what it does while nothing happens.
func restart(ctx context.Context, c config, world *cluster.Cluster, of side, keys []types.NamespacedName) (start, move, idle phase, err error) {
	s, err := startSubject(ctx, world, of, c.workers)
	if err != nil {
		return start, move, idle, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	if _, err := s.ask(probe.Request{Keys: len(keys)}); err != nil {
		return start, move, idle, err
	}
	if start, err = s.end(ctx); err != nil {
		return start, move, idle, err
	}
	if err := s.begin(); err != nil {
		return start, move, idle, err
	}
	host := func(key types.NamespacedName) string { return "new." + cluster.Host(key) }
	if err := errors.Join(world.MoveSites(ctx, keys, host), settled(ctx, world, keys, host)); err != nil {
		return start, move, idle, err
	}
	if move, err = s.end(ctx); err != nil {
		return start, move, idle, err
	}
	if err := errors.Join(s.begin(), wait(ctx, c.idle)); err != nil {
		return start, move, idle, err
	}
	idle, err = s.end(ctx)
	return start, move, idle, err
}

// settled waits until all Websites have the given hosts, an Ingress and a status.
func settled(ctx context.Context, world *cluster.Cluster, keys []types.NamespacedName, host func(types.NamespacedName) string) error {
	for _, key := range keys {
		if _, _, err := world.Settled(ctx, key, host(key), website.Pending); err != nil {
			return err
		}
	}
	return nil
}

// endState describes all objects, without the parts that differ between API servers.
func endState(world *cluster.Cluster) (string, error) {
	type object struct {
		Name, Owner string
		Labels      map[string]string
		Spec        netv1.IngressSpec
		Status      website.Status
	}
	var all []object
	for key, ingress := range world.Ingresses.All() {
		site, exists, err := world.Websites.Get(key)
		if err != nil || !exists || len(ingress.OwnerReferences) != 1 {
			return "", fmt.Errorf("the Ingress %s does not belong to a Website: %w", key, err)
		}
		owner := ingress.OwnerReferences[0]
		owner.UID = ""
		all = append(all, object{key.String(), owner.String(), ingress.Labels, ingress.Spec, site.Status})
	}
	slices.SortFunc(all, func(a, b object) int { return cmp.Compare(a.Name, b.Name) })
	text, err := json.Marshal(all)
	return string(text), err
}
