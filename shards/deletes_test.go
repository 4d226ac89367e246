package shards

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
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

// A Lease has room for a limited number of keys.
func TestALeaseTakesAsManyDeletesAsItHasRoomFor(t *testing.T) {
	lease := &coordinationv1.Lease{}
	few := map[string][]string{"a": {"default/x"}}
	if added := addDeletes(lease, few); number(added) != 1 || lease.Annotations[deletesAnnotation] != format(few) {
		t.Errorf("of one key, %v is added: %v", added, lease.Annotations)
	}
	if added := addDeletes(lease, nil); number(added) != 0 || lease.Annotations[deletesAnnotation] != format(few) {
		t.Errorf("of none, %v is added: %v", added, lease.Annotations)
	}
	var keys []string
	for n := range 10_000 {
		keys = append(keys, fmt.Sprintf("%s/%05d", strings.Repeat("n", 57), n))
	}
	added := addDeletes(lease, map[string][]string{"a": keys, "b": keys[:100]})
	there := deletesIn(lease)
	if size := len(lease.Annotations[deletesAnnotation]); size > maxDeletes || len(added["a"]) < 2000 || number(there) != number(added)+1 {
		t.Errorf("%d keys are added, and %d are there, in %d bytes", number(added), number(there), size)
	}
	if !slices.Contains(there["a"], "default/x") {
		t.Error("a key that was there is lost")
	}
	before := lease.Annotations[deletesAnnotation]
	if added := addDeletes(lease, map[string][]string{"c": {strings.Repeat("n", maxDeletes)}}); number(added) != 0 || lease.Annotations[deletesAnnotation] != before {
		t.Errorf("%d keys are added for which there is no room", number(added))
	}
}
