package shards_test

import (
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"github.com/customcacheinformer/informer/e2e/internal/stage"
)

// recorder records all calls.
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

// changedLocked wakes all that wait for a change.
func (r *recorder) changedLocked() {
	close(r.told)
	r.told = make(chan struct{})
}

func (r *recorder) begin(b begin) order {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dead[b.Replica] {
		return order{Refused: true} // it is not read
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

// hearing has the changes that a replica has got: those between its first list and what it
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

// allCrashed reports whether every replica that knew of a delete was killed soon after it.
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
func (r *recorder) until(there func() bool) bool {
	look := func() (bool, <-chan struct{}) {
		r.mu.Lock()
		defer r.mu.Unlock() // also when there ends the test
		return there(), r.told
	}
	late := time.After(stage.Patience)
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
