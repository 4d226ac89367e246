package leases

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/customcacheinformer/informer/internal/sharding"
)

// A Lease that was changed by hand must not stop the set.
func TestLeasesOfNonsenseAreRead(t *testing.T) {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
		holdsAnnotation: "{", seenAnnotation: "[1]", claimsAnnotation: "\x00", deletesAnnotation: "7",
	}}}
	lease.Spec.LeaseDurationSeconds = new(int32)
	*lease.Spec.LeaseDurationSeconds = -5
	s := ReadSession(lease)
	if s.ID != "" || s.Duration != 0 || len(s.Holds) != 0 || s.Seen != nil || s.Idle || s.Ended {
		t.Errorf("%+v", s)
	}
	if d := ReadDeletes(lease); d != nil {
		t.Errorf("deletes: %v", d)
	}
	if c := ReadClaims(lease); c != nil {
		t.Errorf("claims: %v", c)
	}
	for name, ok := range map[string]bool{
		"test-bucket-3": true, "test-bucket-03": false, "test-bucket-": false, "test-bucket-x": false, "other-bucket-3": false,
		"test-session-3": false, "test-bucket--3": false,
	} {
		if _, got := BucketOf("test", &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}); got != ok {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// Other replicas read everything that a replica writes into a Lease.
func TestSessionsAndPastsAreReadAsTheyWereWritten(t *testing.T) {
	lease := Mark{Set: "test", Buckets: 8}.On(nil, "test-session-1", "a_1")
	want := Session{
		ID: "a_1", Duration: 15 * time.Second, Holds: sets.New(1, 2, 7), Workers: map[string]string{"w": "string"},
		Seen: Versions{"w": {"0": "12"}}, Idle: true, Late: true,
	}
	want.Write(lease, time.Now())
	if got := ReadSession(lease); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	want.Idle, want.Late, want.Ended, want.Holds = false, false, true, sets.New[int]()
	End(lease)
	Session{ID: "a_1", Duration: want.Duration, Workers: want.Workers}.Write(lease, time.Now()) // the versions stay
	if got := ReadSession(lease); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for _, past := range []Past{{Seen: Versions{"w": {"0": "12"}}, Died: true}, {Seen: Versions{}}} {
		past.Write(lease)
		if got := ReadPast(lease); !reflect.DeepEqual(got, past) {
			t.Errorf("got %+v, want %+v", got, past)
		}
	}
}

// A holder answers only for the deletes since it got the bucket.
func TestBucketsOfTheSameTimeHaveOneClaim(t *testing.T) {
	lease := &coordinationv1.Lease{}
	handled := Handled{"w": {"0": {After: "10", To: "20"}, "1": {After: "5", To: "6"}}}
	early, late := Versions{"w": {"0": "7", "1": "9"}}, Versions{"w": {"0": "15"}}
	SetClaims(lease, Claims(handled, map[int]Versions{3: late, 0: early, 1: early}))
	want := []Claim{
		{Buckets: "0-1", Handled: Handled{"w": {"0": {After: "10", To: "20"}, "1": {After: "9", To: "9"}}}},
		{Buckets: "3", Handled: Handled{"w": {"0": {After: "15", To: "20"}}}},
	}
	if got := ReadClaims(lease); !reflect.DeepEqual(got, want) || !got[0].In().Equal(sets.New(0, 1)) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	SetClaims(lease, nil)
	if got := ReadClaims(lease); got != nil {
		t.Errorf("removed claims: %+v", got)
	}
}

// Over many clusters, the claims of buckets that were taken at different times would not fit into a Lease.
func TestManyClaimsAreMerged(t *testing.T) {
	const sources, buckets = 500, 64
	ranges, known := map[string]sharding.Range{}, map[int]Versions{}
	for n := range sources {
		ranges[fmt.Sprintf("0.ConfigMap/cluster-%04d|", n)] = sharding.Range{After: "1000000", To: "9000000"}
	}
	for b := range buckets {
		versions := map[string]string{}
		for source := range ranges {
			versions[source] = fmt.Sprint(2000000 + b)
		}
		known[b] = Versions{"w": versions}
	}
	delete(known[5]["w"], "0.ConfigMap/cluster-0007|") // this bucket was taken before the cluster came
	claims := Claims(Handled{"w": ranges}, known)
	all := sets.New[int]()
	for _, c := range claims {
		for b := range c.In() {
			if all.Has(b) {
				t.Errorf("bucket %d is in two claims", b)
			}
			all.Insert(b)
			for source, r := range c.Handled["w"] {
				if since, ok := known[b]["w"][source]; !ok || !IsAsNew(r.After, since) || r.To != "9000000" {
					t.Fatalf("bucket %d, which knew version %q of %s, claims %+v", b, since, source, r)
				}
			}
		}
	}
	if size := len(format(claims)); size > maxClaims || all.Len() != buckets {
		t.Errorf("the %d claims of %d buckets have %d bytes", len(claims), all.Len(), size)
	}
	if n := len(claims[0].Handled["w"]); n < sources-1 {
		t.Errorf("a claim has %d sources", n)
	}
}

// A merged claim must not have more than each of the two has.
func TestAMergedClaimHasWhatBothHave(t *testing.T) {
	one := Handled{"w": {"0": {After: "10", To: "20"}, "1": {After: "30", To: "30"}, "2": {After: "1", To: "9"}, "3": {After: "1", To: "2"}}}
	other := Handled{"w": {"0": {After: "12", To: "19"}, "1": {After: "5", To: "20"}, "2": {After: "1", To: "9"}}}
	want := Handled{"w": {"0": {After: "12", To: "19"}, "1": {After: "30", To: "30"}, "2": {After: "1", To: "9"}}}
	for _, got := range []Handled{one.and(other), other.and(one)} {
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
}
