package leases

import (
	"maps"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/customcacheinformer/informer/internal/sharding"
)

// Past is the record in the Lease of a bucket of the holder before this one.
type Past struct {
	Seen Versions // if the holder has died, it may have seen more
	Died bool
}

// ReadPast returns the past in the Lease of a bucket. A missing part is zero.
func ReadPast(lease *coordinationv1.Lease) Past {
	return Past{Seen: parse[Versions](lease.Annotations[seenAnnotation]), Died: lease.Annotations[diedAnnotation] != ""}
}

// Write writes the past into the Lease of a bucket. If the Lease has no room for the versions, because others have added
// deletes, Write returns false and writes the past of a holder that has died, without versions.
func (p Past) Write(lease *coordinationv1.Lease) (whole bool) {
	seen := format(p.Seen)
	if whole = len(seen) <= roomFor(lease, seenAnnotation)+forPast; !whole {
		seen, p.Died = "", true
	}
	annotate(lease, seenAnnotation, seen)
	annotate(lease, diedAnnotation, flagText(p.Died))
	return whole
}

// maxDeletes is the maximum number of bytes of the deletes in a Lease, and maxAnnotations that of all annotations, with
// their names, when deletes or claims are added. Kubernetes allows 256 KiB for all annotations. The rest is for what the next holder
// writes: of that, its past may have forPast.
const (
	maxDeletes     = 200 << 10
	maxAnnotations = 240 << 10
	forPast        = 15 << 10
)

// Deletes are the keys of deletes, by worker.
type Deletes map[string][]string

// Number returns the number of keys of all workers.
func (d Deletes) Number() (n int) {
	for _, keys := range d {
		n += len(keys)
	}
	return n
}

// ReadDeletes returns the deletes in the Lease of a bucket, or nil if it has none.
func ReadDeletes(lease *coordinationv1.Lease) Deletes {
	return parse[Deletes](lease.Annotations[deletesAnnotation])
}

// HasDeletes reports whether the Lease of a bucket has deletes.
func HasDeletes(lease *coordinationv1.Lease) bool { return lease.Annotations[deletesAnnotation] != "" }

// Write replaces the deletes in the Lease of a bucket by d. It reports whether that has changed the
// Lease.
func (d Deletes) Write(lease *coordinationv1.Lease) bool {
	text := ""
	if len(d) > 0 {
		text = format(d)
	}
	before := lease.Annotations[deletesAnnotation]
	annotate(lease, deletesAnnotation, text)
	return text != before
}

// AddTo adds deletes to the Lease of a bucket, as many as there is room for. It returns the added
// deletes, or nil if there is no room.
func (d Deletes) AddTo(lease *coordinationv1.Lease) (added Deletes) {
	there, room := ReadDeletes(lease), min(maxDeletes, roomFor(lease, deletesAnnotation))
	for ; d.Number() > 0; d = d.half() {
		if text := format(d.union(there)); len(text) <= room {
			annotate(lease, deletesAnnotation, text)
			return d
		}
	}
	return nil
}

// roomFor returns how many bytes the annotation may have. It may be less than 0.
func roomFor(lease *coordinationv1.Lease, annotation string) (room int) {
	room = maxAnnotations - len(annotation)
	for key, value := range lease.Annotations {
		if key != annotation {
			room -= len(key) + len(value)
		}
	}
	return room
}

// union returns the keys of both, sorted and without duplicates.
func (d Deletes) union(other Deletes) Deletes {
	all := Deletes{}
	for _, m := range []Deletes{d, other} {
		for name, keys := range m {
			all[name] = append(all[name], keys...)
		}
	}
	for name, keys := range all {
		slices.Sort(keys)
		all[name] = slices.Compact(keys)
	}
	return all
}

func (d Deletes) half() Deletes {
	some := Deletes{}
	for name, keys := range d {
		if n := len(keys) / 2; n > 0 {
			some[name] = keys[:n]
		}
	}
	return some
}

// Claim is which deletes are handled: those with keys in Buckets whose versions are in the ranges of
// Handled. A claim stays true when another replica gets a bucket.
//
// A holder claims only deletes since it got the bucket. It may not know of earlier deletes, because it
// may have started or reconnected after an object was created and deleted. Replicas that got such a
// delete pass it to the holder.
type Claim struct {
	Buckets string  `json:"buckets"` // as in the Lease of a session
	Handled Handled `json:"handled"`
}

// Handled holds the ranges of versions whose deletes are handled, by worker and then by source.
type Handled map[string]map[string]sharding.Range

// Claims returns the claims of a replica. handled has the ranges that are handled, and known has, for
// each bucket, the versions that the replica knew when it got the bucket. Buckets with the same ranges
// share a claim.
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
	for len(claims) > 1 && len(format(claims)) > maxClaims {
		claims = merged(claims)
	}
	return claims
}

// maxClaims is the number of bytes of claims beyond which claims are merged. Buckets of different times have a claim each, with
// the ranges of all sources, so that over many clusters the claims would not fit into a Lease. One claim has at most about 100
// bytes for each source, and is left as it is.
const maxClaims = 64 << 10

// merged returns half as many claims, each in place of two. A merged claim has what both have.
func merged(claims []Claim) (fewer []Claim) {
	for pair := range slices.Chunk(claims, 2) {
		c := pair[0]
		if len(pair) > 1 {
			c = Claim{formatBuckets(c.In().Union(pair[1].In())), c.Handled.and(pair[1].Handled)}
		}
		fewer = append(fewer, c)
	}
	return fewer
}

// and returns the parts of the ranges that are in both.
func (h Handled) and(other Handled) Handled {
	both := Handled{}
	for name, ranges := range h {
		both[name] = map[string]sharding.Range{}
		for source, r := range ranges {
			o, ok := other[name][source]
			if !ok {
				continue
			}
			if !IsAsNew(r.After, o.After) {
				r.After = o.After
			}
			if IsAsNew(r.To, o.To) {
				r.To = o.To
			}
			if IsAsNew(r.After, r.To) {
				r.To = r.After
			}
			both[name][source] = r
		}
	}
	return both
}

// ReadClaims returns the claims in a Lease, or nil if it has none that can be read or the Lease is a
// copy of another one.
func ReadClaims(lease *coordinationv1.Lease) []Claim {
	return parse[[]Claim](Believed(lease).Annotations[claimsAnnotation])
}

// SetClaims writes claims into a Lease. If claims is empty, or the Lease has no room for them, it removes the claims that the
// Lease has: then the other replicas keep what they know for longer.
func SetClaims(lease *coordinationv1.Lease, claims []Claim) {
	text := ""
	if len(claims) > 0 {
		text = format(claims)
	}
	if len(text) > roomFor(lease, claimsAnnotation) {
		text = ""
	}
	annotate(lease, claimsAnnotation, text)
}

// In returns the buckets of a claim.
func (c Claim) In() sets.Set[int] { return parseBuckets(c.Buckets) }

// since returns the parts of the ranges that come after the versions in known.
func (h Handled) since(known Versions) Handled {
	after := Handled{}
	for name, ranges := range h {
		after[name] = map[string]sharding.Range{}
		for source, r := range ranges {
			since := known[name][source]
			if order, err := resourceversion.CompareResourceVersion(r.After, since); err != nil {
				continue // nothing was known, or the versions have no order
			} else if order < 0 {
				r.After = since
			}
			if order, err := resourceversion.CompareResourceVersion(r.After, r.To); err == nil && order > 0 {
				r.To = r.After // an empty range also shows which deletes the holder may not know of
			}
			after[name][source] = r
		}
	}
	return after
}
