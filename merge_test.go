package informer

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"github.com/customcacheinformer/informer/internal/eventlog"
	"github.com/customcacheinformer/informer/internal/index"
	"github.com/customcacheinformer/informer/internal/object"
	"github.com/customcacheinformer/informer/internal/stopwatch"
)

type pod = *corev1.Pod

// world makes random records like those of the log.
type world struct {
	rnd     *rand.Rand
	objs    map[string]pod
	version int64
}

func newWorld(seed uint64) *world {
	return &world{rnd: rand.New(rand.NewPCG(seed, 7)), objs: map[string]pod{}}
}

func (w *world) object(key string, uid types.UID) pod {
	w.version++
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: key, UID: uid, Generation: w.version}}
}

// step changes one of n objects and returns the records of that change: one, or a delete and
// an add.
func (w *world) step(n int) []record[pod] {
	key := fmt.Sprint("o", w.rnd.IntN(n))
	old := w.objs[key]
	uid := types.UID(fmt.Sprint("uid-", w.version))
	added := func() record[pod] {
		w.objs[key] = w.object(key, uid)
		return record[pod]{key: key, event: Event[pod]{Type: EventAdded, New: w.objs[key]}}
	}
	deleted := func() record[pod] {
		delete(w.objs, key)
		return record[pod]{key: key, event: Event[pod]{Type: EventDeleted, Old: old}}
	}
	switch dice := w.rnd.IntN(10); {
	case old == nil:
		return []record[pod]{added()}
	case dice < 2:
		return []record[pod]{deleted()}
	case dice < 4:
		return []record[pod]{deleted(), added()}
	case dice < 5: // a resync
		return []record[pod]{{key: key, event: Event[pod]{Type: EventUpdated, Origin: OriginResync, Old: old, New: old}}}
	case dice < 6: // records without an event
		return []record[pod]{{kind: recordVoid}, {key: key, unchanged: true, event: Event[pod]{Type: EventUpdated, Old: old, New: old}}}
	}
	w.objs[key] = w.object(key, old.UID)
	return []record[pod]{{key: key, event: Event[pod]{Type: EventUpdated, Old: old, New: w.objs[key]}}}
}

// view is the state that a watcher derives from its events.
type view map[string]pod

func (v view) apply(e Event[pod]) error {
	key := e.Object().Name
	known := v[key]
	switch {
	case e.Type == EventAdded && known != nil:
		return fmt.Errorf("%s is added although the watcher knows it", key)
	case e.Type == EventAdded && e.Old != nil:
		return fmt.Errorf("the add of %s has an Old", key)
	case e.Type != EventAdded && e.Old != known:
		return fmt.Errorf("%s is %s, and Old is not the object that the watcher knows", key, e.Type)
	case e.Type == EventUpdated && e.New.UID != known.UID:
		return fmt.Errorf("%s was created again, but the event is an update", key)
	case e.Type == EventDeleted:
		delete(v, key)
	default:
		v[key] = e.New
	}
	return nil
}

// TestABacklogMergesSoThatTheEndIsTheSame reads backlogs with random limits at random moments.
// It compares the state that a watcher derives with the state that it must reach.
func TestABacklogMergesSoThatTheEndIsTheSame(t *testing.T) {
	const steps, objects = 400, 12
	merging, whole, seeds := 0, 0, 2000
	if testing.Short() {
		seeds = 200
	}
	for seed := range uint64(seeds) {
		w := newWorld(seed)
		limits := []int{-1, 1, 2, 5, 20, 2 * steps}
		b := &backlog[pod]{limit: limits[w.rnd.IntN(len(limits))]}
		l := eventlog.New(countEvents[pod])
		c := l.Cursor()
		seen := view{}
		patience := 2 + w.rnd.IntN(3)*w.rnd.IntN(100) // higher: the backlog is read less often
		var head segment[pod]                         // popped, not yet applied to seen
		told, away, events, markers := 0, 0, 0, 0
		reached := int64(0)
		tell := func() {
			for i := range head.Records {
				r := &head.Records[i]
				if r.kind == recordMarker {
					markers++
				}
				if !r.isEvent() {
					continue
				}
				told++
				if err := seen.apply(r.event); err != nil {
					t.Fatalf("seed %d, limit %d: %v", seed, b.limit, err)
				}
			}
			if head.End == 0 {
				return // nothing was popped
			}
			if head.End < reached {
				t.Fatalf("seed %d: position %d comes after %d", seed, head.End, reached)
			}
			reached, head = head.End, segment[pod]{}
		}
		for n := range steps {
			if waiting := b.events + head.Events; waiting > 0 && reached >= c.Position() {
				t.Fatalf("seed %d: position %d counts as reached while %d events wait", seed, reached, waiting)
			}
			records := w.step(objects)
			if n == steps/2 {
				records = append(records, record[pod]{kind: recordMarker})
			}
			l.Append(records)
			for s, ok := c.Next(maxChunk); ok; s, ok = c.Next(maxChunk) {
				events += s.Events
				away += b.push(s)
			}
			if most := b.limit + 2*objects; b.limit >= 0 && b.events > most {
				t.Fatalf("seed %d: %d events wait, more than %d", seed, b.events, most)
			}
			for w.rnd.IntN(patience) == 0 {
				tell()
				head, _ = b.pop()
			}
		}
		for ok := true; ok; head, ok = b.pop() {
			tell()
		}
		if diff := cmp.Diff(map[string]pod(seen), w.objs); diff != "" {
			t.Fatalf("seed %d, limit %d: the watcher ends with (-watcher +world):\n%s", seed, b.limit, diff)
		}
		if told+away != events || b.events != 0 {
			t.Fatalf("seed %d: %d events delivered and %d merged away, of %d; %d wait", seed, told, away, events, b.events)
		}
		if markers != 1 || reached != l.End() {
			t.Fatalf("seed %d: %d markers, position %d of %d", seed, markers, reached, l.End())
		}
		if away > 0 {
			merging++
		}
		if b.limit < 0 || b.limit == 2*steps {
			if whole++; away > 0 {
				t.Fatalf("seed %d: %d events merged away within the limit", seed, away)
			}
		}
	}
	if merging < seeds/4 || whole < seeds/4 {
		t.Errorf("only %d runs merged events, and only %d had a limit that cannot be reached", merging, whole)
	}
}

func TestMergingOfEachPair(t *testing.T) {
	v1, v2, v3 := &corev1.Pod{}, &corev1.Pod{}, &corev1.Pod{}
	add := Event[pod]{Type: EventAdded, New: v1, Origin: OriginInitial}
	update := Event[pod]{Type: EventUpdated, Old: v1, New: v2}
	later := Event[pod]{Type: EventUpdated, Old: v2, New: v3, Origin: OriginRelist}
	resync := Event[pod]{Type: EventUpdated, Old: v2, New: v2, Origin: OriginResync}
	gone := Event[pod]{Type: EventDeleted, Old: v2, Origin: OriginRelist, FinalStateUnknown: true}
	again := Event[pod]{Type: EventAdded, New: v3}
	for name, c := range map[string]struct {
		events    []Event[pod]
		attempted bool
		want      []Event[pod]
	}{
		"add, update":                     {events: []Event[pod]{add, update}, want: []Event[pod]{{Type: EventAdded, New: v2, Origin: OriginInitial, Merged: true}}},
		"update, update":                  {events: []Event[pod]{update, later}, want: []Event[pod]{{Type: EventUpdated, Old: v1, New: v3, Origin: OriginRelist, Merged: true}}},
		"update, resync":                  {events: []Event[pod]{update, resync}, want: []Event[pod]{{Type: EventUpdated, Old: v1, New: v2}}},
		"resync, update":                  {events: []Event[pod]{resync, later}, want: []Event[pod]{{Type: EventUpdated, Old: v2, New: v3, Origin: OriginRelist, Merged: true}}},
		"update, back":                    {events: []Event[pod]{update, {Type: EventUpdated, Old: v2, New: v1}}, want: []Event[pod]{{Type: EventUpdated, Old: v1, New: v1, Merged: true}}},
		"resync, delete":                  {events: []Event[pod]{resync, gone}, want: []Event[pod]{gone}},
		"add that failed, update, delete": {events: []Event[pod]{add, update, gone}, attempted: true, want: []Event[pod]{{Type: EventDeleted, Old: v2, Origin: OriginRelist, FinalStateUnknown: true, Merged: true}}},
		"resync, resync":                  {events: []Event[pod]{resync, resync}, want: []Event[pod]{resync}},
		"update, delete":                  {events: []Event[pod]{update, gone}, want: []Event[pod]{{Type: EventDeleted, Old: v1, Origin: OriginRelist, FinalStateUnknown: true, Merged: true}}},
		"add, delete":                     {events: []Event[pod]{add, gone}},
		"add that failed, delete":         {events: []Event[pod]{add, gone}, attempted: true, want: []Event[pod]{gone}},
		"delete, add":                     {events: []Event[pod]{gone, again}, want: []Event[pod]{gone, again}},
		"delete, update (the store still had the object)": {events: []Event[pod]{gone, later}, want: []Event[pod]{gone, {Type: EventAdded, New: v3, Origin: OriginRelist}}},
		"delete, add, delete":                             {events: []Event[pod]{gone, again, {Type: EventDeleted, Old: v3}}, want: []Event[pod]{gone}},
		"delete that failed, add, delete": {
			events: []Event[pod]{gone, again, {Type: EventDeleted, Old: v3}}, attempted: true, want: []Event[pod]{gone},
		},
		"update, delete, add, update": {
			events: []Event[pod]{update, gone, add, update},
			want: []Event[pod]{
				{Type: EventDeleted, Old: v1, Origin: OriginRelist, FinalStateUnknown: true, Merged: true},
				{Type: EventAdded, New: v2, Origin: OriginInitial, Merged: true},
			},
		},
	} {
		var got []Event[pod]
		for _, e := range c.events {
			got = fold(got, e, c.attempted && len(got) == 1)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
	}
}

func TestMergedEventsKeepThePlaceOfTheFirst(t *testing.T) {
	b := &backlog[pod]{limit: 3}
	l := eventlog.New(countEvents[pod])
	c := l.Cursor()
	update := func(key string) record[pod] {
		obj := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: key}}
		return record[pod]{key: key, event: Event[pod]{Type: EventUpdated, Old: obj, New: obj}}
	}
	l.Append([]record[pod]{update("a"), update("b"), {kind: recordMarker}, update("c"), update("a"), update("b")})
	s, _ := c.Next(maxChunk)
	b.push(s)
	var got []string
	for s, ok := b.pop(); ok; s, ok = b.pop() {
		for _, r := range s.Records {
			got = append(got, r.key)
		}
	}
	if diff := cmp.Diff([]string{"a", "b", "", "c"}, got); diff != "" {
		t.Errorf("keys, with \"\" for the marker (-want +got):\n%s", diff)
	}
}

func TestACrewHasHandledNothingThatStillWaits(t *testing.T) {
	opts := Options[pod]{}.withDefaults()
	p := newProcessor(index.NewScan(nil), nil, stopwatch.New(), false, opts)
	l := newListener(p, WatcherFunc[pod](nil), WatcherOptions{Workers: 2}, 1)
	c := l.crew
	c.queue = workqueue.NewTypedDelayingQueue[string]()
	defer c.queue.ShutDown()
	add := func(key string, end int64) {
		obj := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: key}}
		c.enqueue(segment[pod]{Records: []record[pod]{{key: key, event: Event[pod]{Type: EventAdded, New: obj}}}, End: end})
	}
	handled := func(want int64) {
		t.Helper()
		if got := l.handled.Load(); got != want {
			t.Errorf("handled up to %d, want %d", got, want)
		}
	}
	finish := func(key string) { c.release(c.claim(key), &attempt[pod]{}, 0, false, false) }
	add("a", 1)
	add("b", 5) // four records, merged into one
	add("c", 6)
	handled(0)
	finish("b")
	handled(0)
	finish("a")
	handled(5)
	e := c.claim("c")
	add("c", 7) // is not merged into the event that is being handled
	c.release(e, &attempt[pod]{}, 0, false, false)
	handled(6)
	finish("c")
	handled(7)
}

// TestRecordsOfWhichNothingRemainsAreDropped pushes records of relists without changes, which
// hold no events. Behind a blocked watcher, such records must not fill the memory.
func TestRecordsOfWhichNothingRemainsAreDropped(t *testing.T) {
	const limit, objects, relists = 100, 500, 50
	l := eventlog.New(countEvents[pod])
	c := l.Cursor()
	b := &backlog[pod]{limit: limit}
	obj := &corev1.Pod{}
	for range relists {
		for range objects {
			l.Append([]record[pod]{{key: "a", unchanged: true, event: Event[pod]{Type: EventUpdated, Old: obj, New: obj}}})
			s, _ := c.Next(maxChunk)
			b.push(s)
		}
	}
	kept := len(b.last.Records)
	for s, ok := b.popSegment(); ok; s, ok = b.popSegment() {
		kept += len(s.Records)
	}
	if kept > 2*maxChunk {
		t.Errorf("%d of %d records are kept", kept, relists*objects)
	}
	if s, _ := b.pop(); s.End < l.End()-2*maxChunk {
		t.Errorf("reached position %d of %d", s.End, l.End())
	}
}

func TestABacklogTakesOneEntryPerChunk(t *testing.T) {
	const total = 20 * maxChunk
	l := eventlog.New(countEvents[pod])
	c := l.Cursor()
	b := &backlog[pod]{limit: -1}
	for n := range int64(total) {
		l.Append([]record[pod]{{event: Event[pod]{New: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Generation: n}}}}})
		s, _ := c.Next(maxChunk)
		b.push(s)
	}
	if got := b.ring.Len(); got > 25 {
		t.Errorf("%d events that came one by one take %d entries of the backlog", total, got)
	}
	want := int64(0)
	for s, ok := b.pop(); ok; s, ok = b.pop() {
		for i := range s.Records {
			if got := s.Records[i].event.New.Generation; got != want {
				t.Fatalf("got record %d, want %d", got, want)
			}
			want++
		}
		if s.End != want {
			t.Fatalf("the segment up to record %d ends at position %d", want-1, s.End)
		}
	}
	if want != total {
		t.Errorf("%d of %d records came out", want, total)
	}
}

// twin is an object whose namespace and name are those of other objects.
func twin(version string) pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "1", ResourceVersion: version}}
}

// TestAStateTellsObjectsOfOneNameApartByTheirKeys reads two such objects from a store while the log
// changes one of them, and merges what follows.
func TestAStateTellsObjectsOfOneNameApartByTheirKeys(t *testing.T) {
	log := eventlog.New(countEvents[pod])
	s := &state[pod]{log: log.Cursor(), origin: OriginInitial, keyed: true, more: true}
	log.Append([]record[pod]{{key: "west|default/web", event: Event[pod]{Type: EventUpdated, Old: twin("w1"), New: twin("w2")}}})
	s.followLog()
	var page object.Entries
	page.Append("east|default/web", twin("e1"))
	page.Append("west|default/web", twin("w2"))
	s.setPage(page, "")
	if got := s.untold(); got != 2 {
		t.Errorf("%d events are untold, want 2", got)
	}
	merged := newMergeQueue[pod]()
	told := map[string]string{}
	tell := func(records []record[pod]) {
		for i := range records {
			if r := &records[i]; r.isEvent() {
				told[r.key] += r.event.Type.String() + " " + r.event.New.ResourceVersion + ", "
				merged.mergeRecord(r, s.end)
			}
		}
	}
	part, _ := s.next()
	tell(part.Records)
	tell([]record[pod]{{key: "west|default/web", event: Event[pod]{Type: EventUpdated, Old: twin("w1"), New: twin("w2")}}})
	if diff := cmp.Diff(map[string]string{"east|default/web": "added e1, ", "west|default/web": "added w1, updated w2, "}, told); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	waiting := map[string]string{}
	for _, r := range merged.pop(9).Records {
		waiting[r.key] = r.event.Type.String() + " " + r.event.New.ResourceVersion
	}
	if diff := cmp.Diff(map[string]string{"east|default/web": "added e1", "west|default/web": "added w2"}, waiting); diff != "" {
		t.Errorf("merged (-want +got):\n%s", diff)
	}
}

// TestInheritedDeletesHaveTheKeysOfTheirTombstones takes two tombstones of objects with one name and UID.
func TestInheritedDeletesHaveTheKeysOfTheirTombstones(t *testing.T) {
	s := &state[pod]{inherit: true}
	s.deletes.Append("east|default/web", twin("e1"))
	s.deletes.Append("west|default/web", twin("w1"))
	told := map[string]string{}
	for _, r := range s.nextDeletes().Records {
		told[r.key] = r.event.Type.String() + " " + r.event.Old.ResourceVersion
	}
	if diff := cmp.Diff(map[string]string{"east|default/web": "deleted e1", "west|default/web": "deleted w1"}, told); diff != "" {
		t.Error(diff)
	}
}
