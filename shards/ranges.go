package shards

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/sharding"
)

// ranges says which namespaces each bucket has: those whose hash, the one of package sharding, is in
// the range of the bucket. A Lease has it as JSON.
type ranges struct {
	// Starts has the beginnings of the ranges except the first, which begins at 0. Of ranges that
	// begin at the same hash, all except the last are empty.
	Starts []uint64 `json:"starts"`
	// Weights has the millionths of all objects that each bucket had when the ranges were cut.
	Weights []int `json:"weights"`

	text string // from which they were read
	key  string // other ranges have another one
}

// cut returns ranges that divide namespaces with these weights as evenly as it can. Even ranges would
// not: the upper bits of the hash are the same for ns0 to ns9. A namespace that weighs more than a
// bucket should has several buckets, all empty except one: whoever has that one gets empty ones.
func cut(weights map[string]int, buckets int) *ranges {
	type space struct {
		hash   uint64
		weight int
	}
	var spaces []space
	total := 0
	for namespace, weight := range weights {
		spaces = append(spaces, space{hashOf(namespace), weight})
		total += weight
	}
	slices.SortFunc(spaces, func(a, b space) int { return cmp.Compare(a.hash, b.hash) })
	r := &ranges{Starts: make([]uint64, 0, buckets-1), Weights: make([]int, buckets)}
	next, before := 0, 0 // spaces[:next] come before the cut, and weigh before
	for b := 1; b < buckets; b++ {
		if total == 0 {
			r.Starts = append(r.Starts, uint64(b)*(math.MaxUint64/uint64(buckets)+1))
			continue
		}
		quantile := float64(total) * float64(b) / float64(buckets)
		// A space belongs before the cut if most of it does.
		for next < len(spaces) && float64(before)+float64(spaces[next].weight)/2 < quantile {
			before += spaces[next].weight
			next++
		}
		low, high := uint64(0), uint64(math.MaxUint64)
		if next < len(spaces) {
			high = spaces[next].hash
		}
		if next > 0 {
			low = spaces[next-1].hash
		} else {
			high = 0
		}
		start := low + (high-low)/2 // in the middle, so that new namespaces come to both sides
		if next > 0 && start < math.MaxUint64 {
			start++
		}
		r.Starts = append(r.Starts, start)
	}
	for namespace, weight := range weights {
		r.Weights[r.bucket(namespace)] += weight
	}
	for b, weight := range r.Weights {
		r.Weights[b] = int(float64(weight) / float64(max(1, total)) * 1e6)
	}
	return r
}

// hashOf returns the hash of a namespace.
func hashOf(namespace string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(namespace))
	return h.Sum64()
}

// bucket returns the bucket of a namespace.
func (r *ranges) bucket(namespace string) int {
	h := hashOf(namespace)
	b, _ := slices.BinarySearchFunc(r.Starts, h, func(start, h uint64) int {
		if start <= h {
			return -1
		}
		return 1
	})
	return b
}

// selector returns a selector for the objects in buckets, for ListOptions.ShardSelector. It is "" if
// no range is left.
func (r *ranges) selector(buckets Buckets) string {
	var parts []sharding.ShardRangeRequirement
	for b := range len(r.Starts) + 1 {
		start, end := r.limits(b)
		switch n := len(parts); {
		case start == end || !buckets.Has(b):
		case n > 0 && parts[n-1].End == start:
			parts[n-1].End = end
		default:
			parts = append(parts, sharding.ShardRangeRequirement{Key: "object.metadata.namespace", Start: start, End: end})
		}
	}
	return sharding.NewSelector(parts...).String()
}

// limits returns the beginning and the end of a bucket's range.
func (r *ranges) limits(bucket int) (start, end string) {
	start, end = "0x0000000000000000", "0x10000000000000000"
	if bucket > 0 {
		start = fmt.Sprintf("0x%016x", r.Starts[bucket-1])
	}
	if bucket < len(r.Starts) {
		end = fmt.Sprintf("0x%016x", r.Starts[bucket])
	}
	return start, end
}

// parseRanges reads ranges for a number of buckets.
func parseRanges(text string, buckets int) (*ranges, error) {
	r := parse[*ranges](text)
	switch {
	case r == nil:
		return nil, errors.New("it has no ranges of namespaces")
	case len(r.Starts) != buckets-1 || len(r.Weights) != buckets:
		return nil, fmt.Errorf("its ranges are for %d buckets, not for %d", len(r.Starts)+1, buckets)
	case !slices.IsSorted(r.Starts):
		return nil, errors.New("its ranges are not in order")
	case slices.Min(r.Weights) < 0:
		return nil, errors.New("a weight is less than 0")
	}
	r.text, r.key = text, strconv.FormatUint(hash(text), 16)
	return r, nil
}
