package leases

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"
)

func TestBucketsAreWrittenAsRanges(t *testing.T) {
	for _, b := range []sets.Set[int]{
		sets.New[int](), sets.New(0), sets.New(0, 1, 2, 3), sets.New(5, 7, 8, 9, 1023),
	} {
		if got := parseBuckets(formatBuckets(b)); !got.Equal(b) {
			t.Errorf("%v is written as %q and read as %v", b, formatBuckets(b), got)
		}
	}
	for text, want := range map[string]sets.Set[int]{
		"": {}, "x": {}, "-1": {}, "3-1": {}, "0-99999999999": {}, "1,x,3-4": sets.New(1, 3, 4), "1024": {}, "2-": {},
	} {
		if got := parseBuckets(text); !got.Equal(want) {
			t.Errorf("%q is read as %v, want %v", text, got, want)
		}
	}
}
