package shards

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes/fake"
)

func TestTheDeletesOfTwoReplicasAreJoined(t *testing.T) {
	got := union(map[string][]string{"a": {"x", "w"}, "b": {"y"}}, map[string][]string{"a": {"v", "w"}, "c": {"z"}})
	want := map[string][]string{"a": {"v", "w", "x"}, "b": {"y"}, "c": {"z"}}
	if !maps.EqualFunc(got, want, slices.Equal) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := union(nil, nil); len(got) != 0 {
		t.Errorf("two without any: %v", got)
	}
}

// A Lease has room for a limited number of keys. The ErrorHandler is told how many are left out.
func TestDeletesForWhichALeaseHasNoRoomAreReported(t *testing.T) {
	var reports []error
	s, err := New(fake.NewClientset().CoordinationV1().Leases("default"), Options{
		Name: "test", ErrorHandler: func(_ context.Context, err error) { reports = append(reports, err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	s.ctx = t.Context()
	few := map[string][]string{"a": {"default/x"}}
	if text := s.fitting(1, few); text != format(few) || len(reports) != 0 {
		t.Errorf("one key: %s, reported: %v", text, reports)
	}
	if text := s.fitting(1, nil); text != "" {
		t.Errorf("no key: %q", text)
	}
	var keys []string
	for n := range 10_000 {
		keys = append(keys, fmt.Sprintf("%s/%05d", strings.Repeat("n", 57), n))
	}
	text := s.fitting(7, map[string][]string{"a": slices.Clone(keys), "b": slices.Clone(keys[:100])})
	left := parse[map[string][]string](text)
	if len(text) > maxDeletes || len(left["a"]) < 2000 {
		t.Errorf("%d keys are left, in %d bytes", len(left["a"]), len(text))
	}
	want := fmt.Sprintf("shards: set test: bucket 7: %v: %d keys", ErrDropped, len(keys)+100-len(left["a"])-len(left["b"]))
	if len(reports) != 1 || !errors.Is(reports[0], ErrDropped) || reports[0].Error() != want {
		t.Errorf("reported: %v, want %s", reports, want)
	}
	if text := s.fitting(7, map[string][]string{"a": {strings.Repeat("n", maxDeletes)}}); len(text) > maxDeletes || len(reports) != 2 {
		t.Errorf("one huge key: %d bytes, reported: %v", len(text), reports)
	}
}
