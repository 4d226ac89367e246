package e2e_test

import (
	"context"
	"log"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/customcacheinformer/informer/e2e/apiserver"
)

var server *apiserver.Server

func TestMain(m *testing.M) {
	if text := os.Getenv(livesVariable); text != "" {
		liveUntilKilled(text)
		return
	}
	var err error
	if server, err = apiserver.Start(context.Background()); err != nil {
		log.Fatal(err)
	}
	code := m.Run()
	server.Stop()
	// Timers of the API server's own, see Server.Stop.
	waits := goleak.IgnoreAnyFunction("k8s.io/apiserver/pkg/storage/cacher.(*watchCache).waitUntilFreshLocked.func2")
	if err := goleak.Find(waits); err != nil && code == 0 {
		log.Print(err)
		code = 1
	}
	os.Exit(code)
}
