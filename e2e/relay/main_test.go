package relay_test

import (
	"log"
	"os"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/klog/v2"

	"github.com/customcacheinformer/informer/e2e/apiserver"
)

func TestMain(m *testing.M) {
	klog.SetOutput(os.Stderr)
	if text := os.Getenv(processVariable); text != "" {
		if err := serveProcess(text); err != nil {
			log.Fatal(err)
		}
		return
	}
	os.Exit(apiserver.ExitCode(m.Run(), goleakIgnored()...))
}

// goleakIgnored names goroutines of k8s.io/apiserver that outlive a server, and end by themselves.
func goleakIgnored() []goleak.Option { return nil }
