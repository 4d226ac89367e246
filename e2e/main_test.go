package e2e_test

import (
	"context"
	"log"
	"os"
	"testing"

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
	os.Exit(apiserver.ExitCode(code))
}
