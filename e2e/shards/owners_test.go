package shards_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const (
	prefix = "shards.customcacheinformer.github.io/"
	// unownedFor is the longest time that a bucket may be without an owner. A second beyond the lease
	// is promised. The other one is for the race detector, on a machine on which seven processes, the
	// API server and etcd share two processors. The histories print the longest time that they saw.
	unownedFor = lease + 2*time.Second
)

// owners follows the Leases of a set, and knows how the replicas are doing.
type owners struct {
	mu       sync.Mutex
	sessions map[string]*session // by id
	buckets  [buckets]bucket
	replicas map[string]condition
	down     bool      // the API server
	outage   time.Time // when it was last down
	asked    time.Time // when the request was made that shows how quick the API server is; zero for none
	checked  time.Time // when checkLocked was last called
	slowTo   time.Time // requests may fail, and be made again, up to this time
	slow     time.Duration

	worst              time.Duration // that a bucket was unowned
	faults             []string
	graceful, failover []time.Duration
	writes             int
	skewed             int // writes with a time that is wrong
	log                func(format string, args ...any)
}

// session is a replica's session as its Lease shows it.
type session struct {
	replica     string
	version     string
	renewed     time.Time // when this version was seen
	joined      bool      // it was not idle once
	idle        bool      // it takes no buckets, because it has just begun, or ends
	ended, gone bool
	over        time.Time // when it was first seen to end
}

// bucket is the Lease of a bucket.
type bucket struct {
	holder   string
	token    int64
	released time.Time // when its holder released it; zero if it is owned
	unowned  time.Time // zero if it is owned
	faulty   bool      // it was unowned for too long, and that was noted
	failures map[int64]bool
	tenures  []tenure
}

// tenure is the begin of a time in which a session has a bucket.
type tenure struct {
	session string
	from    time.Time
}

// condition is how a replica is doing.
type condition struct {
	able bool
	lost time.Time // when it was killed, stopped or cut off
}

func newOwners(log func(string, ...any)) *owners {
	o := &owners{checked: time.Now(), sessions: map[string]*session{}, replicas: map[string]condition{}, log: log}
	for b := range o.buckets {
		o.buckets[b].failures = map[int64]bool{}
	}
	return o
}

func (o *owners) listed(list *unstructured.UnstructuredList) {
	there := map[string]bool{}
	for i := range list.Items {
		o.changed(&list.Items[i], false)
		there[list.Items[i].GetName()] = true
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for id, s := range o.sessions {
		if _, nonce, _ := strings.Cut(id, "_"); !there[setName+"-session-"+nonce] {
			s.gone = true
			s.overAt(time.Now())
		}
	}
}

func (o *owners) changed(obj object, deleted bool) {
	holder, _, _ := unstructured.NestedString(obj.Object, "spec", "holderIdentity")
	token, _, _ := unstructured.NestedInt64(obj.Object, "spec", "leaseTransitions")
	o.mu.Lock()
	defer o.mu.Unlock()
	if !strings.HasPrefix(obj.GetName(), setName) {
		return
	}
	o.writes++
	now := time.Now()
	for _, field := range []string{"renewTime", "acquireTime"} {
		text, _, _ := unstructured.NestedString(obj.Object, "spec", field)
		if at, err := time.Parse(time.RFC3339Nano, text); err == nil && at.Sub(now) > 20*time.Second {
			o.skewed++
		}
	}
	if number, ok := strings.CutPrefix(obj.GetName(), setName+"-bucket-"); ok {
		n, err := strconv.Atoi(number)
		if err != nil || n >= buckets || deleted {
			o.faultLocked("the Lease %s: %v, deleted %v", obj.GetName(), err, deleted)
			return
		}
		o.bucketLocked(n, holder, token, now)
		return
	}
	if !strings.HasPrefix(obj.GetName(), setName+"-session-") {
		return
	}
	s := o.sessions[holder]
	if s == nil {
		name, _, _ := strings.Cut(holder, "_")
		s = &session{replica: name}
		o.sessions[holder] = s
		o.log("session %s", holder)
	}
	annotations := obj.GetAnnotations()
	if s.version != obj.GetResourceVersion() {
		s.version, s.renewed = obj.GetResourceVersion(), now
	}
	if annotations[prefix+"ended"] != "" && !s.ended {
		o.log("session %s is ended", holder)
		s.ended = true
	}
	s.idle = annotations[prefix+"idle"] != ""
	s.joined = s.joined || !s.idle
	s.gone = deleted
	if s.ended || s.gone || s.idle && s.joined {
		s.overAt(now)
	}
	o.checkLocked(now)
}

func (s *session) overAt(now time.Time) {
	if s.over.IsZero() {
		s.over = now
	}
}

// changedHands reports whether a session that had a bucket in a time was over then.
func (o *owners) changedHands(n int, from, to time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	tenures := o.buckets[n].tenures
	for i, t := range tenures {
		s := o.sessions[t.session]
		switch {
		case s == nil || t.from.After(to):
		case i+1 < len(tenures) && tenures[i+1].from.Before(from):
		case s.over.After(from) && s.over.Before(to):
			return true
		}
	}
	return false
}

// unheld reports whether no session had a bucket before a time.
func (o *owners) unheld(n int, at time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	tenures := o.buckets[n].tenures
	return len(tenures) == 0 || tenures[0].from.After(at)
}

func (o *owners) bucketLocked(n int, holder string, token int64, now time.Time) {
	b := &o.buckets[n]
	if b.holder == holder && b.token == token {
		return // deletes were added or removed
	}
	switch {
	case token < b.token, holder != "" && token == b.token:
		o.faultLocked("bucket %d: token %d of %q comes after %d of %q", n, token, holder, b.token, b.holder)
	case holder == "":
		b.released = now
	case b.holder != "":
		b.failures[token] = true
		if s := o.sessions[b.holder]; s != nil {
			if lost := o.replicas[s.replica].lost; !lost.IsZero() && o.outage.Before(lost) {
				o.failover = append(o.failover, now.Sub(lost))
			}
		}
	case !b.released.IsZero() && o.outage.Before(b.released):
		o.graceful = append(o.graceful, now.Sub(b.released))
	}
	o.log("bucket %d: %q -> %q, token %d", n, b.holder, holder, token)
	b.holder, b.token = holder, token
	b.tenures = append(b.tenures, tenure{holder, now})
	if holder != "" {
		b.released = time.Time{}
		b.unowned, b.faulty = time.Time{}, false // the holder was alive, even if it was cut off just now
	}
	o.checkLocked(now)
}

func (o *owners) faultLocked(format string, args ...any) {
	text := time.Now().Format(clock) + " " + fmt.Sprintf(format, args...)
	o.faults = append(o.faults, text)
	o.log("FAULT: %s", text)
}

// liveLocked reports whether a session can have buckets.
func (o *owners) liveLocked(s *session, now time.Time) bool {
	return s != nil && !s.ended && !s.gone && o.replicas[s.replica].able && now.Sub(s.renewed) < lease
}

// checkLocked notes which buckets are unowned, and since when. While no live replica reaches the API
// server, no time counts.
func (o *owners) checkLocked(now time.Time) {
	able := false
	for _, s := range o.sessions {
		able = able || o.liveLocked(s, now) && !s.idle
	}
	able = able && !o.down
	if o.down {
		o.outage = now
	}
	slow := o.slowLocked(now)
	o.slow += slow
	for n := range o.buckets {
		b := &o.buckets[n]
		if !b.unowned.IsZero() {
			b.unowned = b.unowned.Add(slow)
		}
		switch {
		case o.liveLocked(o.sessions[b.holder], now):
			b.unowned, b.faulty = time.Time{}, false
			continue
		case !able || b.unowned.IsZero():
			b.unowned = now
		}
		took := now.Sub(b.unowned)
		o.worst = max(o.worst, took)
		if took > unownedFor && !b.faulty {
			b.faulty = true
			o.faultLocked("bucket %d has been unowned for %v; its holder is %q; %s", n, took.Round(time.Millisecond), b.holder, o.stateLocked(now))
		}
	}
}

// slowLocked returns how much of the time since the last check does not count, because this process was
// not run, or because the API server does not answer: a replica can do nothing then. After a long
// pause, replicas give requests up, and make them again later.
func (o *owners) slowLocked(now time.Time) time.Duration {
	const quick = 200 * time.Millisecond
	since := now.Sub(o.checked)
	waits := since
	if !o.asked.IsZero() {
		waits = max(waits, now.Sub(o.asked))
	}
	o.checked = now
	if waits > longPause {
		o.slowTo = now.Add(renew + longPause)
	}
	if waits > quick || now.Before(o.slowTo) {
		return since
	}
	return 0
}

// probe notes that a request is made, or was answered.
func (o *owners) probe(begins bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.checkLocked(time.Now())
	o.asked = time.Time{}
	if begins {
		o.asked = time.Now()
	}
}

// stateLocked describes the sessions.
func (o *owners) stateLocked(now time.Time) string {
	var text []string
	for id, s := range o.sessions {
		if s.gone {
			continue
		}
		count := 0
		for n := range o.buckets {
			if o.buckets[n].holder == id {
				count++
			}
		}
		text = append(text, fmt.Sprintf("%s: %d buckets, able %v, renewed %v ago, idle %v, ended %v",
			id, count, o.replicas[s.replica].able, now.Sub(s.renewed).Round(time.Millisecond), s.idle, s.ended))
	}
	slices.Sort(text)
	return strings.Join(text, "; ")
}

func (o *owners) state() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.stateLocked(time.Now())
}

// check looks at the clock.
func (o *owners) check() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.checkLocked(time.Now())
}

// set notes that a replica works, or does not.
func (o *owners) set(replica string, able bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	c := condition{able: able}
	if !able {
		c.lost = time.Now()
	}
	o.replicas[replica] = c
	o.checkLocked(time.Now())
}

// serving notes that the API server runs, or does not.
func (o *owners) serving(yes bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.checkLocked(time.Now())
	o.down = !yes
	o.checkLocked(time.Now())
}

// holders returns the session that has each bucket.
func (o *owners) holders() [buckets]string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var all [buckets]string
	for n := range o.buckets {
		all[n] = o.buckets[n].holder
	}
	return all
}

// settled reports whether these replicas share the buckets evenly, with one session each, and no other
// session is left.
func (o *owners) settled(replicas []string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	count := map[string]int{}
	for id, s := range o.sessions {
		if s.gone {
			continue
		}
		if !o.liveLocked(s, now) || s.idle || !slices.Contains(replicas, s.replica) {
			return false
		}
		count[id] = 0
	}
	if len(count) != len(replicas) {
		return false
	}
	for n := range o.buckets {
		if _, ok := count[o.buckets[n].holder]; !ok {
			return false
		}
		count[o.buckets[n].holder]++
	}
	for _, n := range count {
		if n < buckets/len(replicas) || n > (buckets+len(replicas)-1)/len(replicas) {
			return false
		}
	}
	return true
}

// ids returns the sessions that are there.
func (o *owners) ids() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var ids []string
	for _, id := range slices.Sorted(maps.Keys(o.sessions)) {
		if !o.sessions[id].gone {
			ids = append(ids, id)
		}
	}
	return ids
}

// failedOver reports whether the holder with a token got a bucket that was not released before.
func (o *owners) failedOver(bucket int, token int64) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buckets[bucket].failures[token]
}
