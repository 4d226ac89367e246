package leases

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
)

// MaxBuckets keeps the list of a replica's buckets, and the number of Leases, small.
const MaxBuckets = 1024

// formatBuckets returns b as ranges, such as "0-3,7".
func formatBuckets(b sets.Set[int]) string {
	var parts []string
	all := slices.Sorted(maps.Keys(b))
	for i := 0; i < len(all); {
		last := i
		for last+1 < len(all) && all[last+1] == all[last]+1 {
			last++
		}
		if last == i {
			parts = append(parts, strconv.Itoa(all[i]))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", all[i], all[last]))
		}
		i = last + 1
	}
	return strings.Join(parts, ",")
}

// parseBuckets reads the text of formatBuckets. It leaves out what it cannot read.
func parseBuckets(text string) sets.Set[int] {
	b := sets.New[int]()
	for part := range strings.SplitSeq(text, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		first, err1 := strconv.Atoi(from)
		last, err2 := strconv.Atoi(to)
		if err1 != nil || err2 != nil || first < 0 || last >= MaxBuckets {
			continue
		}
		for n := first; n <= last; n++ {
			b.Insert(n)
		}
	}
	return b
}
