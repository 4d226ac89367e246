package plan

import (
	"cmp"
	"slices"
	"strconv"
)

// Assign returns the session that should have each bucket. sessions are those that may have buckets,
// and holders are those that have each bucket now, "" for a free one. All replicas come to the same
// result, if they have seen the same Leases.
//
// Nobody gets more than ceil(B/n) buckets, or less than floor(B/n). A holder keeps as many of its
// buckets as it may have, so no bucket moves that need not. Rendezvous hashing, which does without
// the holders, moves up to half as many again, because no replica may have more than its share: on
// average 10.1 of 64 buckets when the ninth replica joins, instead of 7.
//
// weights are those of the buckets, or nil if all count the same. They decide which buckets move: a
// holder that has too many keeps as much weight as it should have, and the heaviest of the others go
// to those that have the least.
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
