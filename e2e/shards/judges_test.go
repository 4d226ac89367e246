package shards_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// none reports that no holder got its bucket by a failover, and all that each did.
func none(int, int64) bool { return false }
func all(int, int64) bool  { return true }

func TestTheRecorderBlamesCallsOfOneKeyAtOnce(t *testing.T) {
	play := func(stubborn bool, paused ...string) *recorder {
		r := newRecorder(rand.New(rand.NewPCG(1, 1)))
		r.expect("a", order{Stubborn: stubborn})
		first := r.begin(begin{Replica: "a", Key: "k", Token: 1, Entered: time.Now().UnixNano()})
		for _, name := range paused {
			r.stopped(name)
		}
		second := r.begin(begin{Replica: "b", Key: "k", Token: 2, Entered: time.Now().UnixNano()})
		for _, name := range paused {
			r.resumes(name)
		}
		r.end(end{Call: first.Call, Done: true})
		r.end(end{Call: second.Call, Done: true})
		return r
	}
	for _, c := range []struct {
		name       string
		r          *recorder
		failedOver func(int, int64) bool
		overlaps   int
	}{
		{"two calls at once", play(false), all, 1},
		{"one of a process that was stopped", play(false, "a"), all, 0},
		{"another process was stopped", play(false, "c"), all, 1},
		{"the test was not run", play(false, ""), all, 0},
		{"one that ignores its ctx", play(true), all, 0},
		{"one that ignores its ctx, in a handover", play(true), none, 1},
	} {
		v := c.r.verdict(c.failedOver)
		if v.overlaps != c.overlaps || v.excused != 1-c.overlaps {
			t.Errorf("%s: %v", c.name, v)
		}
		if v.refused != 1 || v.accepted != 1 {
			t.Errorf("%s: the effect with the lower token was not refused: %v", c.name, v)
		}
	}
}

func TestTheRecorderBlamesCallsOfTwoHoldersAtOnce(t *testing.T) {
	r := newRecorder(rand.New(rand.NewPCG(1, 1)))
	r.begin(begin{Replica: "a", Key: "k", Token: 1})
	r.begin(begin{Replica: "a", Key: "other", Token: 1})
	if v := r.verdict(none); v.overlaps+v.early > 0 {
		t.Errorf("two keys of one holder: %v", v)
	}
	r.begin(begin{Replica: "b", Key: "third", Token: 2})
	if v := r.verdict(none); v.overlaps != 0 || v.early != 2 {
		t.Errorf("two holders: %v", v)
	}
	if o := r.begin(begin{Replica: "a", Key: "k", Token: 1}); !o.Refused {
		t.Error("a call of the first holder may begin")
	}
	if closed := r.killed("a"); closed != 2 {
		t.Errorf("%d calls of a killed process are closed, want 2", closed)
	}
}

func TestTheRecorderNoticesStaleReads(t *testing.T) {
	for _, c := range []struct {
		first, second sight
		stale         int
	}{
		{sight{Low: "10"}, sight{Changed: "9", Listed: "3"}, 1},
		{sight{Low: "9"}, sight{Changed: "9"}, 0},
		{sight{Low: "12"}, sight{Changed: "10"}, 0}, // nothing has changed since
		{sight{Low: "10"}, sight{Changed: "3", Listed: "10"}, 0},
		{sight{Low: "9", Version: "10"}, sight{Changed: "10", Version: "9"}, 1},
	} {
		r := newRecorder(rand.New(rand.NewPCG(1, 1)))
		for n, s := range []sight{c.first, c.second} {
			o := r.begin(begin{Replica: fmt.Sprint(n), Key: "k", Token: int64(n + 1)})
			r.end(end{Call: o.Call, Done: true, Seen: [kinds]sight{gadgets: s}})
		}
		handovers, failovers := r.stale([buckets][kinds][]uint64{{gadgets: {3, 9, 10}}}, none)
		if len(handovers) != c.stale || len(failovers) != 0 {
			t.Errorf("%+v: %d stale, %d after a failover", c, len(handovers), len(failovers))
		}
	}
}

func TestDeletesAndNewestStatesAreMissed(t *testing.T) {
	tr := newTruth()
	tr.changed(madeObject("k", "1", 1, 5), false)
	tr.changed(madeObject("k", "1", 2, 6), true)
	tr.changed(madeObject("other", "2", 3, 7), false)
	see := func(sights map[string]sight) int {
		r := newRecorder(rand.New(rand.NewPCG(1, 1)))
		for key, s := range sights {
			r.end(end{Call: r.begin(begin{Key: key}).Call, Done: true, Seen: [kinds]sight{s}})
		}
		missed, _, _ := tr.missed(r, widgets, func(int, death) bool { return false })
		_, deaths, unknown := tr.missed(r, widgets, func(int, death) bool { return true })
		if deaths != 1 || unknown > len(missed) {
			t.Errorf("%d deletes, %d of them may be missed, and %d are", deaths, unknown, len(missed))
		}
		return len(missed)
	}
	seen := sight{UID: "2", Tick: 3}
	for _, c := range []struct {
		sights map[string]sight
		missed int
	}{
		{nil, 2},
		{map[string]sight{"k": {Low: "6"}, "other": seen}, 0},
		{map[string]sight{"k": {UID: "3", Tick: 4}, "other": seen}, 0},
		{map[string]sight{"k": {UID: "1", Tick: 2}, "other": seen}, 1},
		{map[string]sight{"k": {Low: "6"}, "other": {UID: "2", Tick: 2}}, 1},
	} {
		if missed := see(c.sights); missed != c.missed {
			t.Errorf("%v: %d missed, want %d", c.sights, missed, c.missed)
		}
	}
	if blind := tr.blind(newRecorder(nil), widgets); len(blind) > 0 {
		t.Errorf("no call is blind: %q", blind)
	}
	d := death{uid: "1", tick: 2, version: 6, alive: 6, known: time.Unix(100, 0)}
	if d.seen(sight{Low: "5"}, time.Unix(99, 0)) || !d.seen(sight{Low: "5"}, time.Unix(101, 0)) {
		t.Error("a call that finds nothing counts if it has begun after the delete")
	}
	// A list has shown the delete, and its end is not applied: the versions before the list count.
	if d := tr.deaths[0]; d.version != 6 || !d.seen(sight{Low: "5"}, time.Time{}) || d.seen(sight{Low: "4"}, time.Time{}) {
		t.Errorf("%+v: a call that reads the last known state and finds nothing has seen the delete", d)
	}
	// The test itself has missed the delete, and lists later. A call has seen it in between.
	tr = newTruth()
	tr.changed(madeObject("k", "1", 1, 5), false)
	list := &unstructured.UnstructuredList{}
	list.SetResourceVersion("9")
	tr.listed(list)
	if d := tr.deaths[0]; d.version != 9 || !d.seen(sight{Low: "6"}, time.Time{}) || d.seen(sight{Low: "4"}, time.Time{}) {
		t.Errorf("%+v: a call that reads a state after the last known one and finds nothing has seen the delete", d)
	}
}

func TestADeleteIsUnknownIfAllThatKnewOfItWereKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder(nil)
		d := death{name: "k", version: 6, known: time.Now()}
		told := func(name, listed, low string) {
			r.report(report{Replica: name, Listed: [kinds]string{listed}, Low: [kinds]string{low}})
		}
		check := func(want bool, when string) {
			t.Helper()
			if got := r.allCrashed(widgets, d); got != want {
				t.Errorf("%s: %v", when, got)
			}
		}
		told("before", "2", "5")
		told("after", "6", "9")
		check(true, "no replica knew of it")
		told("first", "", "")
		told("first", "2", "5")
		told("first", "7", "9")
		check(false, "a living replica knew of it")
		r.crashed("first")
		check(true, "the one that knew of it was killed")
		told("second", "2", "6")
		check(false, "another one knew of it, and lives")
		time.Sleep(unsure + time.Second)
		r.crashed("second")
		check(false, "the other one was killed much later")
	})
}

func TestBlindCallsAreNoticed(t *testing.T) {
	tr := newTruth()
	tr.changed(madeObject("k", "1", 1, 5), false)
	tr.changed(madeObject("k", "1", 2, 9), true)
	for _, c := range []struct {
		seen  sight
		blind int
	}{
		{sight{Low: "4", Changed: "4"}, 0},
		{sight{Low: "4", Changed: "6"}, 0},
		{sight{Low: "6", Changed: "6"}, 1},
		{sight{Low: "6", Listed: "8"}, 1},
		{sight{Low: "6", Changed: "9"}, 0},
		{sight{Low: "6", Changed: "6", UID: "1"}, 0},
	} {
		r := newRecorder(rand.New(rand.NewPCG(1, 1)))
		r.end(end{Call: r.begin(begin{Key: "k"}).Call, Done: true, Seen: [kinds]sight{c.seen}})
		if blind := tr.blind(r, widgets); len(blind) != c.blind {
			t.Errorf("%+v: %q are blind, want %d", c.seen, blind, c.blind)
		}
	}
}

func TestSessionsThatAreOverAreNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, begun := newOwners(t.Logf), time.Now()
		at := func(seconds int) time.Time { return begun.Add(time.Duration(seconds) * time.Second) }
		write := func(name, holder string, token, version int64) {
			obj := madeObject(setName+"-"+name, "", 0, version)
			obj.Object["spec"] = map[string]any{"holderIdentity": holder, "leaseTransitions": token}
			if name == "session-3" && version != 5 {
				obj.SetAnnotations(map[string]string{prefix + "idle": "true"})
			}
			o.changed(obj, name == "session-1")
		}
		write("bucket-0", "a_1", 1, 1)
		write("bucket-1", "b_2", 1, 2)
		write("session-2", "b_2", 0, 3)
		write("session-3", "c_3", 0, 4) // it begins, so it is not over
		write("session-3", "c_3", 0, 5)
		write("bucket-2", "c_3", 1, 6)
		time.Sleep(time.Minute)
		write("session-1", "a_1", 0, 7)
		write("session-3", "c_3", 0, 8) // it leaves
		write("bucket-0", "b_2", 2, 9)
		write("bucket-3", "b_2", 1, 10)
		for bucket, want := range map[int]bool{0: false, 3: true, 4: true} {
			if got := o.unheld(bucket, at(59)); got != want {
				t.Errorf("no replica had bucket %d: %v", bucket, got)
			}
		}
		for _, c := range []struct {
			bucket, from, to int
			want             bool
		}{
			{0, 50, 70, true}, {0, 10, 50, false}, {0, 70, 80, false}, {1, 50, 70, false},
			{2, 50, 70, true}, {2, 0, 50, false},
		} {
			if got := o.changedHands(c.bucket, at(c.from), at(c.to)); got != c.want {
				t.Errorf("bucket %d from second %d to %d: %v", c.bucket, c.from, c.to, got)
			}
		}
	})
}

func madeObject(name, uid string, tick, version int64) object {
	return &unstructured.Unstructured{Object: map[string]any{"tick": tick, "metadata": map[string]any{
		"name": name, "uid": uid, "resourceVersion": fmt.Sprint(version),
	}}}
}

func TestUnownedBucketsAreNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOwners(t.Logf)
		version, faults := int64(0), 0
		write := func(name, holder string, token int64) {
			version++
			obj := madeObject(setName+"-"+name, "", 0, version)
			obj.Object["spec"] = map[string]any{"holderIdentity": holder, "leaseTransitions": token}
			o.changed(obj, false)
		}
		pass := func(d time.Duration, want int, what string) {
			t.Helper()
			for ; d > 0; d -= 20 * time.Millisecond {
				time.Sleep(20 * time.Millisecond)
				for _, id := range []string{"a_1", "b_2"} {
					if name, nonce := id[:1], id[2:]; o.replicas[name].able {
						write("session-"+nonce, id, 0)
					}
				}
				o.check()
			}
			if faults += want; len(o.faults) != faults {
				t.Fatalf("%s: %d more faults, want %d: %q", what, len(o.faults)-faults+want, want, o.faults)
			}
		}
		o.set("a", true)
		o.set("b", true)
		for n := range buckets {
			write(fmt.Sprint("bucket-", n), "a_1", 1)
		}
		pass(time.Minute, 0, "all is well")
		o.set("a", false)
		pass(unownedFor-time.Second/2, 0, "a is lost")
		for n := range buckets - 1 {
			write(fmt.Sprint("bucket-", n), "b_2", 2)
		}
		pass(time.Second, 1, "one bucket is not taken")
		write("bucket-15", "b_2", 2)
		if len(o.failover) != buckets || o.failedOver(0, 1) || !o.failedOver(0, 2) {
			t.Errorf("failovers: %v", o.failover)
		}
		write("bucket-15", "", 2)
		time.Sleep(time.Second)
		o.mu.Lock()
		o.checked = time.Now() // that was not a pause
		o.mu.Unlock()
		write("bucket-15", "b_2", 3)
		if len(o.graceful) != 1 || o.graceful[0] != time.Second {
			t.Errorf("graceful: %v", o.graceful)
		}
		write("bucket-15", "", 3)
		o.probe(true)
		pass(time.Minute, 0, "the API server does not answer")
		o.probe(false)
		o.serving(false)
		pass(time.Minute, 0, "the API server is down")
		o.serving(true)
		pass(unownedFor+time.Second, 1, "no replica takes the bucket")
		write("bucket-15", "b_2", 3)
		if len(o.faults) != faults+1 {
			t.Error("a token that another holder had is not noticed")
		}
	})
}

func TestPercentiles(t *testing.T) {
	var all []time.Duration
	for n := range 101 {
		all = append(all, time.Duration(100-n)*time.Second)
	}
	if got, want := percentiles(all), "101, p50 50s, p99 1m39s"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
