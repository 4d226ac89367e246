package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/customcacheinformer/informer/e2e/apiserver"
)

func TestMain(m *testing.M) {
	roles.Play()
	os.Exit(apiserver.ExitCode(m.Run()))
}

func TestTheTableHasEachWayToShareTheWork(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes half a minute")
	}
	var out strings.Builder
	p := plan{objects: 400, spaces: 50, replicas: []int{1, 2}, writes: 50, during: 2 * time.Second}
	if err := p.run(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	rows := map[mode]int{clientGo: 1, whole: 2, ignored: 2, served: 2}
	for m, want := range rows {
		if got := strings.Count(out.String(), "| "+string(m)+" |"); got != want {
			t.Errorf("%d rows for %s, want %d", got, m, want)
		}
	}
	t.Log("\n" + out.String())
}

func TestAReplicaYetToListDoesNotHaveItsPart(t *testing.T) {
	w := &world{plan: plan{objects: 400}}
	const half = buckets / 2
	for _, c := range []struct {
		name    string
		objects [2]float64
		want    bool
	}{
		{"both have listed", [2]float64{190, 210}, true},
		{"one still has all, the other none", [2]float64{400, 0}, false},
		{"objects are missing", [2]float64{190, 200}, false},
	} {
		all := []figures{{objects: c.objects[0], owned: half}, {objects: c.objects[1], owned: half}}
		if got := w.shared(ignored, all); got != c.want {
			t.Errorf("%s: shared is %t, want %t", c.name, got, c.want)
		}
	}
}
