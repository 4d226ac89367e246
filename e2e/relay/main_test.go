package relay_test

import (
	"os"
	"testing"

	"k8s.io/klog/v2"

	"github.com/customcacheinformer/informer/e2e/apiserver"
	"github.com/customcacheinformer/informer/internal/lab"
)

func TestMain(m *testing.M) {
	klog.SetOutput(os.Stderr)
	lab.Roles{"relay": lab.RoleOf(serveProcess)}.Play()
	os.Exit(apiserver.ExitCode(m.Run()))
}
