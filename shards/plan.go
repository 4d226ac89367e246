package shards

import (
	"cmp"
	"hash/fnv"
	"slices"
	"strconv"
)

// Bucket returns the bucket of a key, such as "default/shop". It is the same in every replica and
// every version of a program. It does not block.
func (s *Set) Bucket(key string) int { return bucketFor(key, s.opts.Buckets) }

func bucketFor(key string, buckets int) int {
	return int(hash(key) % uint64(buckets))
}

// hash returns a number whose lower bits depend on all of text, also if texts differ only at their
// ends, as the upper bits of FNV do.
func hash(text string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text))
	x := h.Sum64()
	return x ^ x>>32
}

// assign says which session should have each bucket. sessions are those that may have buckets,
// and holders says who has a bucket now, "" for nobody. All replicas come to the same result, if
// they have seen the same Leases.
//
// Nobody gets more than ceil(B/n) buckets, or less than floor(B/n). A holder keeps as many of its
// buckets as it may have, so no bucket moves that need not. Rendezvous hashing, which does without
// the holders, moves up to half as many again, because nobody may have more than its share: on
// average 10.1 of 64 buckets when the ninth replica joins, instead of 7.
func assign(sessions, holders []string) []string {
	wanted := make([]string, len(holders))
	if len(sessions) == 0 {
		return wanted
	}
	has := map[string]int{}
	for _, h := range holders {
		has[h]++
	}
	sessions = slices.Clone(sessions)
	slices.SortFunc(sessions, func(a, b string) int { return cmp.Or(has[b]-has[a], cmp.Compare(a, b)) })
	share := map[string]int{} // how many each may still get
	for i, id := range sessions {
		share[id] = len(holders) / len(sessions)
		if i < len(holders)%len(sessions) {
			share[id]++ // those that have the most already
		}
	}
	var free []int
	for bucket, holder := range holders {
		if share[holder] > 0 {
			share[holder]--
			wanted[bucket] = holder
		} else {
			free = append(free, bucket)
		}
	}
	// Which of the others gets a free bucket is a matter of chance, so that after the end of a
	// replica its buckets go to all others.
	for _, bucket := range free {
		best, most := "", uint64(0)
		for _, id := range sessions {
			if h := hash(strconv.Itoa(bucket) + "/" + id); share[id] > 0 && (best == "" || h > most) {
				best, most = id, h
			}
		}
		share[best]--
		wanted[bucket] = best
	}
	return wanted
}
