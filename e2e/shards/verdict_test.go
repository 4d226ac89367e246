package shards_test

import (
	"fmt"
	"slices"
	"time"
)

// excused reports whether an overlap is not the fault of the replicas: a process, or the test's own,
// was not run, or a call has ignored its ctx, and its replica has lost the bucket by a failover.
func (r *recorder) excused(o overlap, failedOver func(bucket int, token int64) bool) bool {
	from, to := o.first.Token, o.second.Token
	lost := false
	for token := min(from, to) + 1; token <= max(from, to); token++ {
		lost = lost || failedOver(o.first.Bucket, token)
	}
	for _, c := range []*call{o.first, o.second} {
		if lost && c.Stubborn && !c.begin.Deaf && c.order.Deaf == 0 {
			return true
		}
		entered := time.Unix(0, c.Entered)
		for _, p := range r.pauses {
			if p.replica != "" && p.replica != c.Replica || p.from.After(o.at.Add(longPause)) {
				continue
			}
			if p.to.IsZero() || p.to.After(entered) {
				return true
			}
		}
	}
	return false
}

// verdict is what the recorder has found.
type verdict struct {
	calls, accepted, refused, late, cancelled int
	overlaps, excused                         int // for one key
	early                                     int // for one bucket, not excused, and for two keys
	resumed, alive                            int
	pauses                                    int
	blame                                     []string
}

func (v verdict) String() string {
	return fmt.Sprintf("%d calls, %d effects; overlaps: %d of a key, %d more of a bucket, %d excused; refused: %d effects, %d calls before they began; resumed calls: %d, %d of them with a live ctx; %d cancelled; %d pauses",
		v.calls, v.accepted, v.overlaps, v.early, v.excused, v.refused, v.late, v.resumed, v.alive, v.cancelled, v.pauses)
}

func (r *recorder) verdict(failedOver func(bucket int, token int64) bool) (v verdict) {
	r.mu.Lock()
	defer r.mu.Unlock()
	v.calls, v.refused, v.late, v.pauses = len(r.calls), r.refused, r.late, len(r.pauses)
	for _, c := range r.calls {
		if c.accepted {
			v.accepted++
		}
		if c.Resumed {
			v.resumed++
		}
		if c.Alive {
			v.alive++
		}
		if c.Cancelled {
			v.cancelled++
		}
	}
	for _, o := range r.overlaps {
		switch {
		case r.excused(o, failedOver):
			v.excused++
			continue
		case o.sameKey():
			v.overlaps++
		default:
			v.early++
		}
		if len(v.blame) < 5 {
			v.blame = append(v.blame, fmt.Sprintf("%s and %s of bucket %d: %s, and at %s %s",
				o.first.Key, o.second.Key, o.first.Bucket, o.first, o.at.Format(clock), o.second))
		}
	}
	return v
}

// stale returns the calls that have seen an older state than an earlier call for the key. changes
// has the versions of all changes that matter to a bucket, of each kind, sorted. After a failover
// the Leases do not show how much the last holder had seen, so these calls count
// for themselves.
func (r *recorder) stale(changes [buckets][kinds][]uint64, failedOver func(bucket int, token int64) bool) (handovers, failovers []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := map[string]*call{}     // by key: that of the highest token
	before := map[string][]*call{} // by key: the ended calls
	for _, c := range r.calls {
		if c.ended.IsZero() || c.end.Call == 0 {
			continue // the versions that it has seen are unknown
		}
		key := c.Key
		first := last[key] == nil || c.Token > last[key].Token
		if first {
			for _, old := range before[key] {
				if old.Token >= c.Token || old.ended.After(c.begun) {
					continue
				}
				for kind := range kinds {
					low, high := old.Seen[kind].low(), c.Seen[kind].high()
					if of, now := version(old.Seen[kind].Version), version(c.Seen[kind].Version); now > 0 && now < of {
						low, high = of, now
					}
					changes := changes[c.Bucket][kind]
					missed, _ := slices.BinarySearch(changes, high+1)
					if missed >= len(changes) || changes[missed] > low {
						continue
					}
					text := fmt.Sprintf("kind %d, %s of bucket %d: the call of %s has seen version %d, that of %s only %d",
						kind, key, c.Bucket, old, low, c, high)
					if failedOver(c.Bucket, c.Token) {
						failovers = append(failovers, text)
					} else {
						handovers = append(handovers, text)
					}
				}
			}
			last[key] = c
		}
		before[key] = append(before[key], c)
	}
	return handovers, failovers
}
