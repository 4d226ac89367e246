package shards_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/customcacheinformer/informer"
)

// longPause is how long a process may not be run without a note of it. A replica that is not run for
// the margin may work on while another has its buckets.
const longPause = margin / 2

// begin is what a replica says before it does anything in a call.
type begin struct {
	Replica string
	Key     string
	Bucket  int
	Token   int64
	Entered int64 // when reconcile was called
	Deaf    bool  // it goes on whatever the answer is
}

// order is the answer: what to do in the call.
type order struct {
	Call     int64
	Refused  bool          // a later holder of the bucket is known
	For      time.Duration // how long the call takes
	Stubborn bool          // the call ignores its ctx
	Deaf     time.Duration // the replica works on for that long, call after call, whatever has happened
}

// end is what a replica says when a call is over. It is an effect if Done.
type end struct {
	Call      int64
	Done      bool
	Seen      [kinds]sight
	Resumed   bool   // the process was stopped during the call
	Alive     bool   // its ctx had not ended then
	Cancelled bool   // its ctx had ended at the end
	Cause     string // why
}

// sight is what a call has seen of an informer.
type sight struct {
	Low             string // the informer had all changes up to this version before it was read
	Changed, Listed string // it had none after the later one of these
	UID             types.UID
	Version         string // of the object; "" if there was none
	Tick            int64
}

// low returns the version up to which the call has seen all changes.
func (s sight) low() uint64 { return max(version(s.Low), version(s.Version)) }

// high returns a version after which the call has seen no change.
func (s sight) high() uint64 {
	return max(version(s.Changed), version(s.Listed), version(s.Version))
}

// version returns a resourceVersion as a number, 0 for none.
func version(text string) uint64 {
	n, _ := strconv.ParseUint(text, 10, 64)
	return n
}

// report is what a replica says from time to time.
type report struct {
	Replica     string
	From, To    int64 // the process was not run in this time; 0 for none
	Health      informer.ShardsHealth
	DrainingFor time.Duration // which Health's JSON lacks
	Objects     [kinds]int    // in the caches
	Foreign     int           // objects of other replicas that the API server has sent
	Listed, Low [kinds]string // the versions of the last lists, and up to which the caches have all changes
}

// call is a call of reconcile as the recorder knows it. All of it lies between the true begin and the
// true end of the call.
type call struct {
	begin
	order
	end
	begun, ended time.Time // ended is zero while the call is under way
	suspended    bool      // its process was stopped while it was under way
	accepted     bool      // its effect
}

// pause is a time in which a replica was not run. The name of the test's own process is "".
type pause struct {
	replica  string
	from, to time.Time // to is zero while it lasts
}

// overlap is two calls that were under way at once, for one key, or for one bucket with two tokens.
type overlap struct {
	first, second *call
	at            time.Time
}

// sameKey reports whether the calls are for one key.
func (o overlap) sameKey() bool { return o.first.Key == o.second.Key }

// recorder is told of all calls.
type recorder struct {
	*httptest.Server
	mu       sync.Mutex
	random   *rand.Rand
	calls    []*call
	open     map[int64]*call
	tokens   map[int]int64 // the highest of each bucket
	orders   map[string][]order
	dead     map[string]bool
	pauses   []pause
	overlaps []overlap
	health   map[string]report
	heard    map[string]*hearing
	refused  int // effects
	late     int // calls that were refused before they did anything
	told     chan struct{}
}

func newRecorder(random *rand.Rand) *recorder {
	return &recorder{
		random: random, open: map[int64]*call{}, tokens: map[int]int64{}, orders: map[string][]order{},
		dead: map[string]bool{}, health: map[string]report{}, heard: map[string]*hearing{}, told: make(chan struct{}),
	}
}

// serve has replicas reach the recorder.
func (r *recorder) serve() {
	mux := http.NewServeMux()
	mux.HandleFunc("/begin", answer(r.begin))
	mux.HandleFunc("/end", answer(r.end))
	mux.HandleFunc("/report", answer(r.report))
	r.Server = httptest.NewServer(mux)
}

// answer returns a handler that answers questions in JSON.
func answer[Q, A any](f func(Q) A) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		var q Q
		if err := json.NewDecoder(req.Body).Decode(&q); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		_ = json.NewEncoder(w).Encode(f(q))
	}
}

// changedLocked wakes everybody who waits for a change.
func (r *recorder) changedLocked() {
	close(r.told)
	r.told = make(chan struct{})
}

func (r *recorder) begin(b begin) order {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dead[b.Replica] {
		return order{Refused: true} // nobody reads it
	}
	defer r.changedLocked()
	if b.Token < r.tokens[b.Bucket] && !b.Deaf {
		r.late++
		return order{Refused: true}
	}
	r.tokens[b.Bucket] = max(r.tokens[b.Bucket], b.Token)
	o := order{For: time.Duration(2+r.random.IntN(49)) * time.Millisecond}
	if r.random.IntN(8) == 0 {
		o.For *= 8
	}
	if b.Deaf {
		o.Stubborn = true
	} else if orders := r.orders[b.Replica]; len(orders) > 0 {
		o, r.orders[b.Replica] = orders[0], orders[1:]
	}
	o.Call = int64(len(r.calls) + 1)
	c := &call{begin: b, order: o, begun: time.Now()}
	for _, other := range r.open {
		if other.Key == b.Key || other.Bucket == b.Bucket && other.Token != b.Token {
			r.overlaps = append(r.overlaps, overlap{other, c, c.begun})
		}
	}
	r.calls = append(r.calls, c)
	r.open[o.Call] = c
	return o
}

func (r *recorder) end(e end) struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.open[e.Call]
	if c == nil {
		return struct{}{} // the process was killed
	}
	defer r.changedLocked()
	delete(r.open, e.Call)
	c.end, c.ended = e, time.Now()
	switch {
	case !e.Done:
	case c.Token < r.tokens[c.Bucket]:
		r.refused++
	default:
		c.accepted = true
	}
	return struct{}{}
}

func (r *recorder) report(about report) struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if about.To != 0 {
		r.pauses = append(r.pauses, pause{about.Replica, time.Unix(0, about.From), time.Unix(0, about.To)})
	}
	about.Health.DrainingFor = about.DrainingFor
	r.health[about.Replica] = about
	h := r.heardLocked(about.Replica)
	for kind := range kinds {
		if h.from[kind] == 0 {
			h.from[kind] = version(about.Listed[kind])
		}
		h.to[kind] = max(h.to[kind], version(about.Low[kind]))
	}
	r.changedLocked()
	return struct{}{}
}

// hearing says which changes a replica has been told of: those between its first list and what it
// last reported.
type hearing struct {
	from, to [kinds]uint64
	crashed  time.Time // zero if it was not killed
}

func (r *recorder) heardLocked(replica string) *hearing {
	if r.heard[replica] == nil {
		r.heard[replica] = &hearing{}
	}
	return r.heard[replica]
}

// crashed notes that a replica was killed.
func (r *recorder) crashed(replica string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.heardLocked(replica).crashed = time.Now()
}

// allCrashed reports whether every replica that was told of a delete was killed soon after it.
func (r *recorder) allCrashed(kind int, d death) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range r.heard {
		told := h.from[kind] != 0 && h.from[kind] < d.version && d.version <= h.to[kind]
		if told && (h.crashed.IsZero() || h.crashed.After(d.known.Add(unsure))) {
			return false
		}
	}
	return true
}

// spaces returns the bucket of each namespace in which there was a call for a key. That is the one of all
// its keys if whole namespaces are divided.
func (r *recorder) spaces() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[string]int{}
	for _, c := range r.calls {
		all[spaceOf(c.Key)] = c.Bucket
	}
	return all
}

// expect has the next calls of a replica do what is ordered.
func (r *recorder) expect(replica string, orders ...order) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.orders[replica] = append(r.orders[replica], orders...)
}

// killed closes the calls of a process that does not run any more.
func (r *recorder) killed(replica string) (calls int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dead[replica] = true
	for id, c := range r.open {
		if c.Replica == replica {
			c.ended = time.Now()
			delete(r.open, id)
			calls++
		}
	}
	r.changedLocked()
	return calls
}

// stopped notes that a process is not run. It returns how many calls are suspended.
func (r *recorder) stopped(replica string) (calls int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pauses = append(r.pauses, pause{replica: replica, from: time.Now()})
	for _, c := range r.open {
		if c.Replica == replica {
			c.suspended = true
			calls++
		}
	}
	return calls
}

// resumes notes that a process is about to be run again.
func (r *recorder) resumes(replica string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.pauses {
		if p := &r.pauses[i]; p.replica == replica && p.to.IsZero() {
			p.to = time.Now()
		}
	}
}

// until waits until there returns true, and reports whether it does. The recorder is locked then.
func (r *recorder) until(t *testing.T, there func() bool) bool {
	t.Helper()
	look := func() (bool, <-chan struct{}) {
		r.mu.Lock()
		defer r.mu.Unlock() // also when there ends the test
		return there(), r.told
	}
	late := time.After(patience)
	for {
		ok, told := look()
		if ok {
			return true
		}
		select {
		case <-told:
		case <-late:
			return false
		}
	}
}

// excused reports whether nobody can blame an overlap on the replicas: a process, or the test's own,
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

const clock = "15:04:05.000"

func (c *call) String() string {
	ended := "not ended"
	if !c.ended.IsZero() {
		ended = "ended " + c.ended.Format(clock)
	}
	return fmt.Sprintf("%s with token %d, entered %s, begun %s, %s (done %v, cause %q)",
		c.Replica, c.Token, time.Unix(0, c.Entered).Format(clock), c.begun.Format(clock), ended, c.Done, c.Cause)
}

// stale returns the calls that have seen an older state than an earlier call for the key. changes
// has the versions of all changes that matter to a bucket, of each kind, sorted. After a failover
// there is nothing in the Leases that says how much the last holder had seen, so these calls count
// for themselves.
func (r *recorder) stale(changes [buckets][kinds][]uint64, failedOver func(bucket int, token int64) bool) (handovers, failovers []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := map[string]*call{}     // by key: that of the highest token
	before := map[string][]*call{} // by key: the ended calls
	for _, c := range r.calls {
		if c.ended.IsZero() || c.end.Call == 0 {
			continue // nobody knows what it has seen
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
