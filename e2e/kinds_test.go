package e2e_test

import (
	"flag"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/customcacheinformer/informer/kinds"
)

var kindsTurns = flag.Int("kinds-turns", 5, "how many disturbances TestKindsComeAndGo makes at random, after one of each; none that is slow with -short")

// disturbance is something that happens to a kind while all others are written to.
type disturbance struct {
	name       string
	aggregated bool // it happens to the aggregated kind
	cuts       bool // all watches end
	slow       bool // it takes more than 10 s
	do         func(w *kindsWorld, k *kind)
}

var disturbances = []disturbance{
	{name: "its CRD is deleted and created again", do: func(w *kindsWorld, k *kind) {
		k.uninstall()
		k.settles()
		w.is(k.name, kinds.Waiting, "")
		k.othersGoOn()
		k.install()
	}},
	{name: "its CRD is deleted and created again at once", do: func(_ *kindsWorld, k *kind) {
		k.uninstall()
		k.install()
	}},
	{name: "its CRD is created again with another scope", do: func(w *kindsWorld, k *kind) {
		k.uninstall()
		k.cluster = !k.cluster
		k.install()
		k.writes(5)
		w.eventually("the scope is the old one", func() bool {
			h, _ := w.set.Find(k.name)
			return h.State == kinds.Reading && h.Namespaced != k.cluster
		})
	}},
	{name: "its CRD is established late", do: func(w *kindsWorld, k *kind) {
		if plural, again := strings.CutSuffix(k.plural, "late"); again {
			k.plural = plural
		} else {
			k.plural += "late"
		}
		late := k.definition(k.gvk.Group, k.gvk.Kind)
		var installing errgroup.Group
		installing.Go(func() error {
			_, err := k.server.InstallDefinition(w.t.Context(), late)
			return err
		})
		w.eventually("the second CRD of the kind is not refused", func() bool {
			crd, err := k.crds().Get(w.t.Context(), late.Name, metav1.GetOptions{})
			return err == nil && apihelpers.IsCRDConditionFalse(crd, apiextensionsv1.NamesAccepted)
		})
		k.writes(5)
		k.check()
		k.uninstall() // the first CRD
		if err := installing.Wait(); err != nil {
			w.t.Fatal(err)
		}
		k.served()
	}},
	{name: "its schema changes", do: func(_ *kindsWorld, k *kind) {
		halt := k.busy()
		k.note += "."
		k.change()
		halt()
	}},
	{name: "its history expires", do: func(w *kindsWorld, k *kind) {
		halt := k.busy()
		if err := k.server.Expire(w.t.Context(), k.gvr); err != nil {
			w.t.Fatal(err)
		}
		halt()
	}},
	{name: "a version comes, is stored, and is no longer served", do: func(w *kindsWorld, k *kind) {
		pinned, err := w.set.Acquire(kinds.Kind{Group: k.gvk.Group, Kind: k.gvk.Kind, Version: "v2"})
		if err != nil {
			w.t.Fatal(err)
		}
		defer pinned.Release()
		w.is(pinned.Kind().String(), kinds.Waiting, "version v2 is not served")
		for _, version := range []string{"v2", "v1"} {
			moves, halt := w.count(w.moves, k), k.busy()
			k.storage, k.v2 = version, version == "v2"
			k.change()
			halt()
			if k.settles(); w.count(w.moves, k) == moves {
				w.t.Errorf("no object of %s has moved to %s", k.name, version)
			}
			if k.v2 {
				w.is(pinned.Kind().String(), kinds.Reading, "")
				if err := pinned.WaitForSync(w.t.Context()); err != nil {
					w.t.Error(err)
				}
				continue
			}
			w.is(pinned.Kind().String(), kinds.Parked, "version v2 is not served")
			if list, err := pinned.List("", labels.Everything()); len(list) == 0 || err != nil {
				w.t.Errorf("the version that is no longer served has %d objects, %v", len(list), err)
			}
		}
	}},
	{name: "its conversion webhook fails", slow: true, do: func(w *kindsWorld, k *kind) {
		k.v2, k.webhook = true, true
		k.change()
		k.parked("convert")
		k.webhook = false
		k.change()
		k.settles()
		k.v2 = false
		k.change()
	}},
	{name: "its right is taken away and given back", cuts: true, do: func(w *kindsWorld, k *kind) {
		w.forbid(k.gvr.Resource)
		k.parked("forbidden")
		w.forbid("")
	}},
	{name: "the server of its group does not answer", aggregated: true, cuts: true, do: func(w *kindsWorld, k *kind) {
		w.aggregate("False")
		k.parked("no endpoints")
		w.eventually("Health does not show the group", func() bool { return strings.Contains(w.set.Health().DiscoveryError, aggregatedGroup) })
		k.parked("no endpoints")
		w.aggregate("True")
	}},
	{name: "its APIService is deleted and created again", aggregated: true, cuts: true, do: func(w *kindsWorld, k *kind) {
		there, left, objects := maps.Clone(k.there), w.count(w.left, k), k.stored()
		w.aggregate("")
		k.gone = true
		k.lose()
		if k.settles(); w.count(w.left, k)-left != objects {
			w.t.Errorf("%d of %d objects have left", w.count(w.left, k)-left, objects)
		}
		k.othersGoOn()
		w.aggregate("True")
		k.gone, k.there = false, there
		for key, version := range k.state() {
			k.wrote[key.Name] = append(k.wrote[key.Name], moment{state: version})
		}
	}},
	{name: "the right to CRDs is taken away and given back", cuts: true, slow: true, do: func(w *kindsWorld, k *kind) {
		w.forbid("customresourcedefinitions")
		w.eventually("discovery does not take the place of the CRDs", func() bool { return w.set.Health().Polls })
		k.writes(5)
		k.othersGoOn()
		k.settles()
		w.forbid("")
		w.eventually("the CRDs do not count again", func() bool { return !w.set.Health().Polls })
	}},
}

// untouched is the number of an object that the writer of a kind does not choose. So each disturbance finds an object that does not change,
// and that may get lost.
const untouched = 30

// disturb lets a disturbance happen to a kind, and checks all kinds after it.
func (w *kindsWorld) disturb(d disturbance, k *kind) {
	var halts []func()
	for _, other := range w.all {
		if other != k {
			halts = append(halts, other.busy())
		}
	}
	if k.there[untouched] == "" {
		k.writeTo(untouched)
	}
	k.settles()
	d.do(w, k)
	for _, halt := range halts {
		halt()
	}
	for _, other := range w.all {
		if unasked := other.check(); unasked && other != k && !d.cuts {
			w.t.Errorf("%s was listed, although nothing happened to it and no watch of it ended", other.name)
		}
		w.is(other.name, kinds.Reading, "")
	}
}

// TestKindsComeAndGo compares the events of a set with the writes, while CRDs, APIServices and rights change. No event comes twice, no delete is
// of an object that remains, and all kinds end with the state of the server. No write is missed, unless the kind is listed again. That may be only
// if something happened to it, or its watch ended.
func TestKindsComeAndGo(t *testing.T) {
	w := newKindsWorld(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random, own := rand.New(rand.NewPCG(seed, 59)), len(w.all)-1
	victim := func(d disturbance) *kind {
		if d.aggregated {
			return w.all[own]
		}
		return w.all[random.IntN(own)]
	}
	for _, d := range disturbances {
		if testing.Short() && d.slow {
			continue
		}
		if !t.Run(d.name, func(t *testing.T) {
			w.of(t)
			w.disturb(d, victim(d))
		}) {
			return // the ledgers are no longer those of the events
		}
	}
	t.Run("at random", func(t *testing.T) {
		w.of(t)
		for range *kindsTurns {
			d := disturbances[random.IntN(len(disturbances))]
			if testing.Short() && d.slow {
				continue
			}
			k := victim(d)
			t.Logf("%s: %s", k.name, d.name)
			w.disturb(d, k)
		}
	})
	w.of(t)
	t.Logf("%d writes, %d moves to another version, %d deletes of kinds that were gone", w.writes, sum(w.moves), sum(w.left))
}

func sum(of map[string]int) (n int) {
	for _, m := range of {
		n += m
	}
	return n
}
