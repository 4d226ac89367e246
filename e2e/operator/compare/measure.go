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
	err = c.run(ctx, world, of, step{&f.Create, func(*subject) error { return settled(ctx, world, keys, cluster.Host) }})
	if err != nil {
		return f, "", err
	}
	made, err := endState(world)
	if err != nil {
		return f, "", err
	}
	moved := func(key types.NamespacedName) string { return "new." + cluster.Host(key) }
	err = c.run(ctx, world, of,
		step{&f.Restart, func(s *subject) error { _, err := s.ask(probe.Request{Keys: len(keys)}); return err }},
		step{&f.Move, func(*subject) error {
			return errors.Join(world.MoveSites(ctx, keys, moved), settled(ctx, world, keys, moved))
		}},
		step{&f.Idle, func(*subject) error { return wait(ctx, c.idle) }})
	if err != nil {
		return f, "", err
	}
	end, err = endState(world)
	return f, made + end, err
}

// step is a part of the work, with its measurements.
type step struct {
	phase *phase
	work  func(*subject) error // returns when the work is done
}

// run runs an operator for some steps, one after the other.
func (c config) run(ctx context.Context, world *cluster.Cluster, of side, steps ...step) (err error) {
	s, err := startSubject(ctx, world, of, c.workers)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	for i, step := range steps {
		if i > 0 {
			err = s.begin()
		}
		if err == nil {
			err = step.work(s)
		}
		if err != nil {
			return err
		}
		if *step.phase, err = s.end(ctx); err != nil {
			return err
		}
	}
	return nil
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
