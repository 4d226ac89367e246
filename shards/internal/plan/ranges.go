package plan

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apimachinery/pkg/util/sets"
)

// Ranges describe the namespaces of each bucket: those whose hash is in the range of the bucket. The
// hash is the one that an API server uses for shard selectors.
type Ranges struct {
	// Starts has the start of each range except the first, which starts at 0. If several ranges
	// start at the same hash, all except the last are empty.
	Starts []uint64 `json:"starts"`
	// Weights has the share of all objects of each bucket when the ranges were cut, in millionths.
	Weights []int `json:"weights"`

	text string // from which they were read
}

// Cut returns ranges that divide the objects of namespaces as evenly as possible. weights has the
// number of objects of each namespace. Ranges of equal length would not do, because the upper bits
// of the hash are the same for ns0 to ns9. A namespace heavier than a bucket's share takes the place
// of several buckets, of which all except one are empty.
func Cut(weights map[string]int, buckets int) *Ranges {
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
	r := &Ranges{Starts: make([]uint64, 0, buckets-1), Weights: make([]int, buckets)}
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
		r.Weights[r.Bucket(namespace)] += weight
	}
	for b, weight := range r.Weights {
		r.Weights[b] = int(float64(weight) / float64(max(1, total)) * 1e6)
	}
	text, err := json.Marshal(r)
	if err != nil {
		panic(err) // numbers can be written
	}
	r.text = string(text)
	return r
}

func hashOf(namespace string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(namespace))
	return h.Sum64()
}

// Bucket returns the bucket of a namespace.
func (r *Ranges) Bucket(namespace string) int {
	h := hashOf(namespace)
	b, _ := slices.BinarySearchFunc(r.Starts, h, func(start, h uint64) int {
		if start <= h {
			return -1
		}
		return 1
	})
	return b
}

// Selector returns a selector for the objects in buckets, for ListOptions.ShardSelector. It returns
// "" if all ranges of the buckets are empty.
func (r *Ranges) Selector(buckets sets.Set[int]) string {
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
func (r *Ranges) limits(bucket int) (start, end string) {
	start, end = "0x0000000000000000", "0x10000000000000000"
	if bucket > 0 {
		start = fmt.Sprintf("0x%016x", r.Starts[bucket-1])
	}
	if bucket < len(r.Starts) {
		end = fmt.Sprintf("0x%016x", r.Starts[bucket])
	}
	return start, end
}

// Text returns the ranges as JSON, for [Parse].
func (r *Ranges) Text() string { return r.text }

// Key returns a hash of the ranges, as a short text.
func (r *Ranges) Key() string { return strconv.FormatUint(hash(r.text), 16) }

// Parse reads the text of ranges. It returns an error if they are not for this number of buckets or
// cannot be read.
func Parse(text string, buckets int) (*Ranges, error) {
	r := &Ranges{text: text}
	switch err := json.Unmarshal([]byte(text), r); {
	case err != nil || text == "null":
		return nil, errors.New("it has no ranges of namespaces")
	case len(r.Starts) != buckets-1 || len(r.Weights) != buckets:
		return nil, fmt.Errorf("its ranges are for %d buckets, not for %d", len(r.Starts)+1, buckets)
	case !slices.IsSorted(r.Starts):
		return nil, errors.New("its ranges are not in order")
	case slices.Min(r.Weights) < 0:
		return nil, errors.New("a weight is less than 0")
	}
	return r, nil
}
