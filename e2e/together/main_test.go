package together_test

import (
	"flag"
	"os"
	"testing"
	"time"

	"github.com/customcacheinformer/informer/e2e/apiserver"
	"github.com/customcacheinformer/informer/e2e/internal/stage"
	"github.com/customcacheinformer/informer/internal/lab"
)

var (
	runFor = flag.Duration("together", 10*time.Second, "how long the parts run")
	pods   = flag.Int("pods", 300, "the number of Pods, in both clusters")
	rate   = flag.Int("rate", 50, "changes a second, in both clusters")
	table  = flag.String("table", "", "file to which the table is written")
)

func TestMain(m *testing.M) {
	stage.NoticeSilence()
	lab.Roles{"cluster": lab.RoleOf(serve)}.Play()
	os.Exit(apiserver.ExitCode(m.Run()))
}
