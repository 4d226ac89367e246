package relay_test

import (
	"log"
	"os"
	"testing"

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
	os.Exit(apiserver.ExitCode(m.Run()))
}
