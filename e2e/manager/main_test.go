package manager_test

import (
	"context"
	"log"
	"os"
	"testing"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	crlog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/customcacheinformer/informer/e2e/apiserver"
)

var server *apiserver.Server

func TestMain(m *testing.M) {
	crlog.SetLogger(logr.Discard())
	var err error
	if server, err = apiserver.Start(context.Background()); err != nil {
		log.Fatal(err)
	}
	code := m.Run()
	server.Stop()
	// controller-runtime's watch of metadata leaks this goroutine with every informer: it does
	// not see that it was stopped while it holds an event.
	metadata := goleak.IgnoreTopFunction("k8s.io/apimachinery/pkg/watch.(*filteredWatch).loop")
	os.Exit(apiserver.ExitCode(code, metadata))
}
