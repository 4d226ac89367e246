package plan

import (
	"cmp"
	"slices"
	"strconv"
)

// Assign returns the session that should have each bucket. sessions are the sessions that may have
// buckets. holders has the session that has each bucket now, or "" for a free bucket. Replicas that
// have seen the same Leases get the same result. Without sessions, the result has only "".
//
// Each of n sessions gets from floor(B/n) to ceil(B/n) of B buckets. A holder keeps as many of its
// buckets as it may have, so no bucket moves without need. Rendezvous hashing does not look at the
// holders, and would move half as many buckets again: on average 10.1 of 64 when the ninth replica
// joins, instead of 7.
//
// weights are the weights of the buckets, or nil if all are equal. They decide which buckets move. A
// holder of too many buckets keeps its share of the weight. The other buckets go to the sessions
// with the least weight, the heaviest first.
func Assign(sessions, holders []string, weights []int) []string {
	wanted := make([]string, len(holders))
	if len(sessions) == 0 {
		return wanted
	}
	if weights == nil {
		weights = make([]int, len(holders))
	}
	heaviest := make([]int, len(holders)) // all buckets
	total := 0
	for bucket := range heaviest {
		heaviest[bucket] = bucket
		total += weights[bucket]
	}
	slices.SortStableFunc(heaviest, func(a, b int) int { return weights[b] - weights[a] })

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
	load := map[string]int{} // the weight of what each gets
	give := func(bucket int, id string) {
		share[id]--
		load[id] += weights[bucket]
		wanted[bucket] = id
	}
	for _, bucket := range heaviest {
		id := holders[bucket]
		if share[id] > 0 && (has[id] <= share[id] || load[id] == 0 || load[id]+weights[bucket] <= total/len(sessions)) {
			give(bucket, id)
			has[id]--
		}
	}
	for _, bucket := range slices.Backward(heaviest) { // a holder that may keep more keeps light ones
		if id := holders[bucket]; wanted[bucket] == "" && share[id] > 0 {
			give(bucket, id)
		}
	}
	// Of those that have the same load, chance decides which gets a free bucket, so that after the end of
	// a replica its buckets go to all others.
	for _, bucket := range heaviest {
		if wanted[bucket] != "" {
			continue
		}
		best, most := "", uint64(0)
		for _, id := range sessions {
			h := hash(strconv.Itoa(bucket) + "/" + id)
			if share[id] > 0 && (best == "" || load[id] < load[best] || load[id] == load[best] && h > most) {
				best, most = id, h
			}
		}
		give(bucket, best)
	}
	return wanted
}
