package shards

import (
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
)

func TestBucketsAreWrittenAsRanges(t *testing.T) {
	for _, b := range []Buckets{
		sets.New[int](), sets.New(0), sets.New(0, 1, 2, 3), sets.New(5, 7, 8, 9, 1023),
	} {
		if got := parseBuckets(formatBuckets(b)); !got.Equal(b) {
			t.Errorf("%v is written as %q and read as %v", b, formatBuckets(b), got)
		}
	}
	for text, want := range map[string]Buckets{
		"": {}, "x": {}, "-1": {}, "3-1": {}, "0-99999999999": {}, "1,x,3-4": sets.New(1, 3, 4), "1024": {}, "2-": {},
	} {
		if got := parseBuckets(text); !got.Equal(want) {
			t.Errorf("%q is read as %v, want %v", text, got, want)
		}
	}
}

// A Lease that somebody has changed by hand must not stop the set.
func TestLeasesOfNonsenseAreRead(t *testing.T) {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
		holdsAnnotation: "{", seenAnnotation: "[1]", claimsAnnotation: "\x00", deletesAnnotation: "7",
	}}}
	lease.Spec.LeaseDurationSeconds = new(int32)
	*lease.Spec.LeaseDurationSeconds = -5
	s := readSession(lease)
	if s.id != "" || s.duration != 0 || len(s.holds) != 0 || s.seen != nil || s.idle || s.ended {
		t.Errorf("%+v", s)
	}
	if d := deletesIn(lease); d != nil {
		t.Errorf("deletes: %v", d)
	}
	if c := parse[[]claim](lease.Annotations[claimsAnnotation]); c != nil {
		t.Errorf("claims: %v", c)
	}
	for name, ok := range map[string]bool{
		"test-bucket-3": true, "test-bucket-03": false, "test-bucket-": false, "test-bucket-x": false, "other-bucket-3": false,
		"test-session-3": false, "test-bucket--3": false,
	} {
		if _, got := bucketOf("test", &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}); got != ok {
			t.Errorf("%s: %v", name, got)
		}
	}
}
