package relay_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/klog/v2"

	"github.com/customcacheinformer/informer/e2e/apiserver"
)

func TestMain(m *testing.M) {
	klog.SetOutput(os.Stderr)
	os.Exit(apiserver.ExitCode(m.Run(), goleakIgnored()...))
}

// goleakIgnored names goroutines of k8s.io/apiserver that outlive a server, and end by themselves.
func goleakIgnored() []goleak.Option { return nil }
