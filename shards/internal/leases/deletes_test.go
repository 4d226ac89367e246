package leases

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
)

func TestTheDeletesOfTwoReplicasAreJoined(t *testing.T) {
	got := Deletes{"a": {"x", "w"}, "b": {"y"}}.union(Deletes{"a": {"v", "w"}, "c": {"z"}})
	want := Deletes{"a": {"v", "w", "x"}, "b": {"y"}, "c": {"z"}}
	if !maps.EqualFunc(got, want, slices.Equal) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := Deletes(nil).union(nil); len(got) != 0 {
		t.Errorf("two without any: %v", got)
	}
}

// A Lease has room for a limited number of keys.
func TestALeaseTakesAsManyDeletesAsItHasRoomFor(t *testing.T) {
	lease := &coordinationv1.Lease{}
	few := Deletes{"a": {"default/x"}}
	if added := few.AddTo(lease); added.Number() != 1 || lease.Annotations[deletesAnnotation] != format(few) {
		t.Errorf("of one key, %v is added: %v", added, lease.Annotations)
	}
	if added := Deletes(nil).AddTo(lease); added.Number() != 0 || lease.Annotations[deletesAnnotation] != format(few) {
		t.Errorf("of none, %v is added: %v", added, lease.Annotations)
	}
	var keys []string
	for n := range 10_000 {
		keys = append(keys, fmt.Sprintf("%s/%05d", strings.Repeat("n", 57), n))
	}
	added := Deletes{"a": keys, "b": keys[:100]}.AddTo(lease)
	there := ReadDeletes(lease)
	if size := len(lease.Annotations[deletesAnnotation]); size > maxDeletes || len(added["a"]) < 2000 || there.Number() != added.Number()+1 {
		t.Errorf("%d keys are added, and %d are there, in %d bytes", added.Number(), there.Number(), size)
	}
	if !slices.Contains(there["a"], "default/x") {
		t.Error("a key that was there is lost")
	}
	before := lease.Annotations[deletesAnnotation]
	more := Deletes{"c": {strings.Repeat("n", maxDeletes)}}
	if added := more.AddTo(lease); added.Number() != 0 || lease.Annotations[deletesAnnotation] != before {
		t.Errorf("%d keys are added for which there is no room", added.Number())
	}
}

// The API server refuses a Lease whose annotations together have more than 256 KiB, with every other change in it.
func TestDeletesLeaveRoomForTheOtherAnnotations(t *testing.T) {
	lease := &coordinationv1.Lease{}
	annotate(lease, seenAnnotation, strings.Repeat("v", 150<<10))
	var keys []string
	for n := range 4000 {
		keys = append(keys, fmt.Sprintf("%s/%05d", strings.Repeat("n", 57), n))
	}
	added := Deletes{"a": keys}.AddTo(lease)
	size := 0
	for key, value := range lease.Annotations {
		size += len(key) + len(value)
	}
	if size > maxAnnotations || added.Number() < 500 {
		t.Errorf("with %d keys, the annotations have %d bytes", added.Number(), size)
	}
	annotate(lease, seenAnnotation, strings.Repeat("v", maxAnnotations))
	annotate(lease, deletesAnnotation, "")
	if added := (Deletes{"a": {"default/x"}}).AddTo(lease); added.Number() != 0 {
		t.Errorf("%d keys are added for which there is no room", added.Number())
	}
}

// A bucket could not be released, and a session not be renewed, if the API server refused the claims.
func TestClaimsForWhichThereIsNoRoomAreLeftOut(t *testing.T) {
	lease := &coordinationv1.Lease{}
	claims := []Claim{{Buckets: "1", Handled: Handled{"w": {strings.Repeat("s", 30<<10): {After: "1", To: "2"}}}}}
	annotate(lease, deletesAnnotation, strings.Repeat("d", maxDeletes))
	SetClaims(lease, claims)
	if ReadClaims(lease) == nil {
		t.Error("claims for which there is room are left out")
	}
	annotate(lease, seenAnnotation, strings.Repeat("v", 20<<10))
	SetClaims(lease, claims)
	if n := len(lease.Annotations[claimsAnnotation]); n > 0 {
		t.Errorf("claims with %d bytes are written, for which there is no room", n)
	}
}

// Others may have added deletes before the holder has written what it has seen. No replica could take or release the bucket
// if the API server refused the Lease.
func TestAPastForWhichThereIsNoRoomIsThatOfADeadHolder(t *testing.T) {
	lease := &coordinationv1.Lease{}
	annotate(lease, deletesAnnotation, strings.Repeat("d", maxDeletes))
	past := Past{Seen: Versions{"w": {}}}
	for n := range 2000 {
		past.Seen["w"][fmt.Sprintf("0.ConfigMap/cluster-%04d|", n)] = "100000000"
		if n != 100 && n != 1999 {
			continue
		}
		whole := past.Write(lease)
		if err := apivalidation.ValidateAnnotationsSize(lease.Annotations); err != nil {
			t.Errorf("%d versions: %v", n+1, err)
		}
		if got := ReadPast(lease); whole != (n == 100) || got.Died == whole || whole != (len(got.Seen["w"]) == n+1) {
			t.Errorf("of %d versions, %d are written, whole: %v, died: %v", n+1, len(got.Seen["w"]), whole, got.Died)
		}
	}
}
