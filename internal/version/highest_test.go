package version_test

import (
	"fmt"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/customcacheinformer/informer/internal/version"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTheHighestVersionIsKept(t *testing.T) {
	const huge = "123456789012345678901234567890"
	for _, tc := range []struct{ versions, want string }{
		{"", ""},
		{"0", ""},
		{"5", "5"},
		{"5 7 6", "7"},
		{"9 10", "10"},
		{"10 9 0", "10"},
		{"9999999999999999999 7", "9999999999999999999"},
		{"18446744073709551615 18446744073709551616", "18446744073709551616"},
		{"7 " + huge + " 8", huge},
		{"7 odd", "odd"},
		{"odd 7", "7"},
		{"odd 7 8 6", "8"},
		{"9 odd 7", "7"},
		{"9 07", "07"},
		{"odd other", "other"},
	} {
		var h version.Highest
		for v := range strings.SplitSeq(tc.versions, " ") {
			h.Raise(v)
		}
		if got := h.Get(); got != tc.want {
			t.Errorf("the highest of %q is %q, want %q", tc.versions, got, tc.want)
		}
		h.Reset()
		if got := h.Get(); got != "" {
			t.Errorf("after a reset, the highest is %q", got)
		}
		if h.Raise("1"); h.Get() != "1" {
			t.Errorf("after a reset, 1 is not the highest, but %q", h.Get())
		}
	}
	var h version.Highest
	n := uint64(1 << 40)
	versions := make([]string, 1001)
	for i := range versions {
		versions[i] = fmt.Sprint(n + uint64(i))
	}
	if allocs := testing.AllocsPerRun(1, func() {
		h.Reset()
		for _, v := range versions {
			h.Raise(v)
		}
	}); allocs > 0 {
		t.Errorf("%v allocations for %d versions", allocs, len(versions))
	}
}
