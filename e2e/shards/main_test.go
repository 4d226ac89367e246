package shards_test

import (
	"flag"
	"log"
	"os"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"

	"github.com/customcacheinformer/informer/e2e/apiserver"
	"github.com/customcacheinformer/informer/e2e/internal/process"
	"github.com/customcacheinformer/informer/e2e/internal/stage"
	"github.com/customcacheinformer/informer/internal/lab"
)

var (
	seed      = flag.Int64("shards-seed", 0, "seed of the first history; 0 for a new one each time")
	onlyStep  = flag.String("shards-step", "", "name of the only step to play")
	histories = flag.Int("shards-histories", 5, "how many histories to play, with -short at most one, of a few steps")
)

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
	stage.NoticeSilence()
	lab.Roles{"replica": lab.RoleOf(replicate), "apiserver": lab.RoleOf(process.ServeBeside)}.Play()
	if err := utilfeature.DefaultMutableFeatureGate.Set(string(features.ShardedListAndWatch) + "=true"); err != nil {
		log.Fatal(err)
	}
	os.Exit(apiserver.ExitCode(m.Run()))
}
