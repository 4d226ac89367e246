package main

import (
	"strings"
	"testing"
	"unsafe"

	"github.com/customcacheinformer/informer/internal/mix"
)

func TestPodsFromTheWireShareNoStrings(t *testing.T) {
	sent := mix.New(mixSeed, 100).Pod(50, 0)
	texts := func(p pod) []string {
		return []string{p.Name, p.Namespace, p.OwnerReferences[0].Name, p.Spec.Containers[0].Image, p.Spec.NodeName}
	}
	own, one, other := texts(sent), texts(decodePod(sent)), texts(decodePod(sent))
	for i, s := range one {
		if s != own[i] || unsafe.StringData(s) == unsafe.StringData(other[i]) || unsafe.StringData(s) == unsafe.StringData(own[i]) {
			t.Errorf("%q is shared, or not %q", s, own[i])
		}
	}
	if m := decodeMetadata(sent); m.Name != sent.Name || len(m.ManagedFields) == 0 || unsafe.StringData(m.Name) == unsafe.StringData(sent.Name) {
		t.Errorf("metadata %v", m)
	}
}

// figuresOf runs a section, and returns a function that finds the figures of client-go and of ours in the first
// row whose name begins with the given one.
func figuresOf(t *testing.T, s section) func(row string) (peer, ours float64) {
	t.Helper()
	r := s.run(t.Context(), 1)
	if r.err != nil {
		t.Fatal(r.err)
	}
	return func(row string) (peer, ours float64) {
		t.Helper()
		for _, f := range r.rows {
			if strings.HasPrefix(f.name, row) {
				return f.samples[0][0], f.samples[1][0]
			}
		}
		t.Fatalf("there is no row %q", row)
		return 0, 0
	}
}

func TestLessOfAPodTakesLess(t *testing.T) {
	s := podsSection(tinySizes)
	s.cases = s.cases[1:4]
	figure := figuresOf(t, s)
	whole, ours := figure("heap per Pod")
	stripped, oursStripped := figure("heap per Pod, without managed fields")
	reduced, oursReduced := figure("heap per Pod, reduced by the transform")
	if whole < stripped*1.1 || stripped < reduced*2 || ours < oursStripped*1.1 || oursStripped < oursReduced*2 {
		t.Errorf("client-go: %.0f, %.0f, %.0f; ours: %.0f, %.0f, %.0f", whole, stripped, reduced, ours, oursStripped, oursReduced)
	}
}

func TestSharedPodsTakeLess(t *testing.T) {
	sz := tinySizes
	sz.pods = 1700
	s := shareSection(sz)
	s.cases = append(s.cases[:4], s.cases[len(s.cases)-1])
	figure := figuresOf(t, s)
	asIs, shared := figure("heap per Pod")
	if asIs < 18_000 || asIs > 26_000 || shared > asIs/2 {
		t.Errorf("heap per Pod: %.0f and %.0f shared, want about 22000, and less than half of that", asIs, shared)
	}
	if asIs, shared := figure("heap per Pod in an informer"); asIs < 18_000 || shared > asIs*0.6 {
		t.Errorf("heap per Pod of an informer: %.0f and %.0f shared, want about 22000, and much less than that", asIs, shared)
	}
	if _, stripped := figure("heap per Pod, shared without managed fields"); stripped > shared*0.95 {
		t.Errorf("heap per shared Pod: %.0f without managed fields, want less than %.0f", stripped, shared)
	}
	if before, after := figure("the same, in percent of before"); before < 90 || before > 115 || after < 90 || after > 150 {
		t.Errorf("heap after updates: %.0f %% and %.0f %% of before, want about 100", before, after)
	}
	if left, leftShared := figure("left"); left > asIs/2 || leftShared > shared/2 {
		t.Errorf("left after all are dropped: %.0f of %.0f, and %.0f of %.0f shared", left, asIs, leftShared, shared)
	}
	if decoding, sharing := figure("CPU to decode an update"); decoding <= 0 || sharing <= 0 {
		t.Errorf("decoding an update takes %.2f µs, and sharing it %.2f µs", decoding, sharing)
	}
}
