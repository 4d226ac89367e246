package leases

import (
	"maps"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/sets"
)

// Claim is a true statement about deletes: those with keys in the buckets, and in the ranges of each
// worker's sources, are handled. It stays true when another replica gets a bucket.
//
// A holder answers for the deletes since it got the bucket. It may not know of earlier ones, although
// its caches have them: it may have been started, or connected again, after an object was created and
// deleted. Replicas that were told of such a delete tell the holder.
type Claim struct {
	Buckets string  `json:"buckets"` // as in the Lease of a session
	Handled Handled `json:"handled"`
}

// Handled are ranges of deletes that are handled, by worker, then by source.
type Handled map[string]map[string]Range

// Range is the set of the deletes of a source whose versions come after After, up to and including To.
type Range struct {
	After string `json:"after"`
	To    string `json:"to"`
}

// Claims returns the claims of a replica with buckets: ranges that are handled, and for each bucket the
// versions that were known when the replica got it. Buckets that were taken at the same time have the same
// claim.
func Claims(handled Handled, known map[int]Versions) (claims []Claim) {
	places := map[string]int{} // in claims, by the text of the ranges
	var groups []sets.Set[int]
	for _, b := range slices.Sorted(maps.Keys(known)) {
		since := handled.since(known[b])
		n, ok := places[format(since)]
		if !ok {
			n = len(claims)
			places[format(since)] = n
			claims, groups = append(claims, Claim{Handled: since}), append(groups, sets.New[int]())
		}
		groups[n].Insert(b)
	}
	for n, buckets := range groups {
		claims[n].Buckets = formatBuckets(buckets)
	}
	return claims
}

// ReadClaims reads the claims in a Lease, unless it is a copy of another one.
func ReadClaims(lease *coordinationv1.Lease) []Claim {
	return parse[[]Claim](Believed(lease).Annotations[claimsAnnotation])
}

// SetClaims writes claims into a Lease, or removes those that it has if there are none.
func SetClaims(lease *coordinationv1.Lease, claims []Claim) {
	text := ""
	if len(claims) > 0 {
		text = format(claims)
	}
	annotate(lease, claimsAnnotation, text)
}

// In returns the buckets of a claim.
func (c Claim) In() sets.Set[int] { return parseBuckets(c.Buckets) }

// since returns the parts of the ranges that come after the known versions.
func (h Handled) since(known Versions) Handled {
	after := Handled{}
	for name, ranges := range h {
		after[name] = map[string]Range{}
		for source, r := range ranges {
			since := known[name][source]
			if order, err := resourceversion.CompareResourceVersion(r.After, since); err != nil {
				continue // nothing was known, or the versions have no order
			} else if order < 0 {
				r.After = since
			}
			if order, err := resourceversion.CompareResourceVersion(r.After, r.To); err == nil && order > 0 {
				r.To = r.After // an empty range also says which deletes the holder may not know of
			}
			after[name][source] = r
		}
	}
	return after
}
