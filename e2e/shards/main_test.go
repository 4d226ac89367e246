package shards_test

import (
	"context"
	"flag"
	"log"
	"os"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"

	"github.com/customcacheinformer/informer/e2e/apiserver"
)

var (
	seed      = flag.Int64("shards-seed", 0, "seed of the first history; 0 for a new one each time")
	onlyStep  = flag.String("shards-step", "", "name of the only step to play")
	histories = flag.Int("shards-histories", 5, "how many histories to play, with -short at most one, of a few steps")
)

// patience limits every wait. It is long because machines may be slow and busy.
const patience = 3 * time.Minute

// The options of the set.
const (
	buckets  = 16
	lease    = 3 * time.Second
	renew    = time.Second
	margin   = time.Second
	setName  = "factory"
	leasesIn = "default"
)

func TestMain(m *testing.M) {
	// By default a client probes a connection that has been silent for 30 s, and gives it up
	// 15 s later. A process under the race detector sleeps for a second before it ends.
	for name, value := range map[string]string{
		"HTTP2_READ_IDLE_TIMEOUT_SECONDS": "3", "HTTP2_PING_TIMEOUT_SECONDS": "2", "GORACE": "atexit_sleep_ms=0",
	} {
		if err := os.Setenv(name, value); err != nil {
			log.Fatal(err)
		}
	}
	for variable, run := range map[string]func(string) error{replicaVariable: replicate, besideVariable: serveBeside} {
		if text := os.Getenv(variable); text != "" {
			if err := run(text); err != nil {
				log.Fatal(err)
			}
			return
		}
	}
	if err := utilfeature.DefaultMutableFeatureGate.Set(string(features.ShardedListAndWatch) + "=true"); err != nil {
		log.Fatal(err)
	}
	os.Exit(apiserver.ExitCode(m.Run()))
}

// pass waits for the time d. It returns false if ctx ends first.
func pass(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
