package shards_test

import (
	"fmt"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/customcacheinformer/informer/shards"
)

// longPause is how long a process may not be run without a note of it. A replica that is not run for
// the margin may work on while another has its buckets.
const longPause = margin / 2

// begin is what a replica reports before it does anything in a call.
type begin struct {
	Replica string
	Key     string
	Bucket  int
	Token   int64
	Entered int64 // when reconcile was called
	Deaf    bool  // it continues whatever the answer is
}

// order is the answer: what to do in the call.
type order struct {
	Call     int64
	Refused  bool          // a later holder of the bucket is known
	For      time.Duration // how long the call takes
	Stubborn bool          // the call ignores its ctx
	Deaf     time.Duration // the replica works on for that long, call after call, whatever has happened
}

// end is what a replica reports when a call is over. It is an effect if Done.
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

// report is what a replica sends from time to time.
type report struct {
	Replica     string
	From, To    int64 // the process was not run in this time; 0 for none
	Health      shards.Health
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

const clock = "15:04:05.000"

func (c *call) String() string {
	ended := "not ended"
	if !c.ended.IsZero() {
		ended = "ended " + c.ended.Format(clock)
	}
	return fmt.Sprintf("%s with token %d, entered %s, begun %s, %s (done %v, cause %q)",
		c.Replica, c.Token, time.Unix(0, c.Entered).Format(clock), c.begun.Format(clock), ended, c.Done, c.Cause)
}
