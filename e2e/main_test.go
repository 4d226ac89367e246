package e2e_test

import (
	"context"
	"log"
	"os"
	"testing"
	"time"

	"github.com/customcacheinformer/informer/e2e/apiserver"
)

// patience limits every wait. It is long because machines may be busy.
const patience = 5 * time.Minute

var server *apiserver.Server

// sized returns n, or a fifth of n with -short.
func sized(n int) int {
	if testing.Short() {
		return n / 5
	}
	return n
}

func TestMain(m *testing.M) {
	if text := os.Getenv(livesVariable); text != "" {
		liveUntilKilled(text)
		return
	}
	if os.Getenv(manyKindsVariable) != "" {
		if err := serveManyKinds(context.Background()); err != nil {
			log.Fatal(err)
		}
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
