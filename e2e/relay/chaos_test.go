package relay_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/customcacheinformer/informer/e2e/internal/stage"
)

var seed = flag.Int64("relay-seed", 0, "seed of the chaos; 0 for a new one each time")

func TestInformersBehindARelayAreEqualToTheAPIServerAfterChaos(t *testing.T) {
	lasts := 2 * time.Minute
	if testing.Short() {
		lasts = 5 * time.Second
	}
	if *seed == 0 {
		*seed = time.Now().UnixNano()
	}
	t.Logf("the seed is %d", *seed)
	random := rand.New(rand.NewPCG(uint64(*seed), 1))

	const objects = 40
	w := newWorld(t)
	w.create(objects)
	r := w.separate(t.TempDir())
	behind := w.relay(r.config, "", nil)
	all := append(w.followers(r.config), w.followers(behind.config)...)
	stop := w.write(rand.New(rand.NewPCG(uint64(*seed), 2)), objects, 20*time.Millisecond)
	pause := func(atMost time.Duration) { stage.Pass(t.Context(), time.Duration(random.Int64N(int64(atMost)))) }
	faults := []struct {
		name string
		do   func()
	}{
		{"connections cut", w.front.CloseClientConnections},
		{"API server away", func() {
			w.front.Leave()
			pause(2 * time.Second)
			w.front.Away.Store(false)
		}},
		{"versions expired", func() {
			w.OK(w.server.Expire(t.Context(), leaseKind.GroupVersion().WithResource("leases")))
		}},
		{"watches late", func() {
			w.front.late.Lock()
			defer w.front.late.Unlock()
			pause(2 * time.Second)
		}},
		{"relay killed", func() { r.kill(); pause(time.Second); r.start() }},
		{"relay stopped", func() { r.terminate(); r.start() }},
	}
	count := map[string]int{}
	for begun := time.Now(); time.Since(begun) < lasts; pause(2 * time.Second) {
		fault := faults[random.IntN(len(faults))]
		count[fault.name]++
		fault.do()
	}
	stop()
	w.OK(w.set(t.Context(), "last", fmt.Sprint(*seed)))
	w.awaitEqual(all)
	t.Logf("%v; the API server was asked for %d things", count, len(w.front.asked(0)))
}
