package main

import (
	"strings"
	"testing"
)

func TestSharedPodsTakeLess(t *testing.T) {
	sz := tinySizes
	sz.sharing.pods, sz.sharing.updated = 1000, 500
	s := shareSection(sz)
	s.cases = append(s.cases[:4], s.cases[len(s.cases)-1])
	r := runSection(t.Context(), s, 1, func(int) {})
	if r.err != nil {
		t.Fatal(r.err)
	}
	figure := func(name string) (asIs, shared float64) {
		for _, f := range r.rows {
			if strings.HasPrefix(f.name, name) {
				return f.samples[0][0], f.samples[1][0]
			}
		}
		t.Fatalf("there is no row %q", name)
		return 0, 0
	}
	asIs, shared := figure("heap per Pod")
	if asIs < 18_000 || asIs > 26_000 || shared > asIs/2 {
		t.Errorf("heap per Pod: %.0f and %.0f shared, want about 22000, and less than half of that", asIs, shared)
	}
	if asIs, shared := figure("heap per Pod in an informer"); asIs < 18_000 || shared > asIs*0.6 {
		t.Errorf("heap per Pod of an informer: %.0f and %.0f shared, want about 22000, and much less than that", asIs, shared)
	}
	_, stripped := figure("heap per Pod, shared without managed fields")
	if stripped > shared*0.95 {
		t.Errorf("heap per shared Pod: %.0f without managed fields, want less than %.0f", stripped, shared)
	}
	alone, _ := figure("heap per Pod, both without managed fields")
	if alone > asIs*0.9 {
		t.Errorf("heap per Pod: %.0f without managed fields, want less than %.0f", alone, asIs)
	}
	if before, after := figure("the same, in percent of before"); before < 90 || before > 115 || after < 90 || after > 150 {
		t.Errorf("heap after updates: %.0f %% and %.0f %% of before, want about 100", before, after)
	}
	if left, leftShared := figure("left"); left > asIs/2 || leftShared > shared/2 {
		t.Errorf("left after all are dropped: %.0f of %.0f, and %.0f of %.0f shared", left, asIs, leftShared, shared)
	}
}

func TestObjectsThatAreNotMeasuredAreAnError(t *testing.T) {
	runs := &sharingRuns{done: map[sharing]costs{}}
	if _, err := runs.run(t.Context(), sharing{Objects: "Dogs", Count: 1}); err == nil || !strings.Contains(err.Error(), "1 Dogs") {
		t.Errorf("error %v, want one about 1 Dogs", err)
	}
	if len(runs.done) > 0 {
		t.Errorf("a failure was kept as a result: %v", runs.done)
	}
}

func TestAPartIsAtMostThatOfItsFloor(t *testing.T) {
	for _, c := range []struct {
		ours float64
		met  bool
	}{{37, true}, {39, false}} {
		f := figures{row{floor: atMost(0.38)}, [][]float64{{100}, {c.ours}, {c.ours}}}
		if f.met(1) != c.met || f.met(2) != c.met {
			t.Errorf("%.0f of 100 at a floor of 0.38: met is %v", c.ours, !c.met)
		}
	}
}

func TestOnlySharedAndUpdatedObjectsTakeTheTimeOfThat(t *testing.T) {
	of := sharing{Objects: "Pods", Count: 50, Shared: true, Updates: 2}
	result, err := of.measure()
	if err != nil {
		t.Fatal(err)
	}
	if result.DecodingUpdate <= 0 || result.SharingUpdate <= 0 || result.Decoding <= 0 || result.Sharing <= 0 {
		t.Errorf("no time was taken: %+v", result)
	}
	of.Shared, of.Updates = false, 0
	if result, err = of.measure(); err != nil || result.Sharing != 0 || result.SharingUpdate != 0 || result.DecodingUpdate != 0 {
		t.Errorf("objects that are not shared, %v: %+v", err, result)
	}
}
