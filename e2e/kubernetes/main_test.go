package kubernetes_test

import (
	"context"
	"errors"
	"flag"
	"log"
	"os"
	"testing"
	"time"

	"github.com/customcacheinformer/informer/e2e/apiserver"
	"github.com/customcacheinformer/informer/e2e/kubernetes/kubeapiserver"
)

// patience limits every wait. It is long because machines may be busy.
const patience = 10 * time.Minute

// selects is the flag of an API server that selects the objects of a replica, see docs/sharding.md.
const selects = "--feature-gates=ShardedListAndWatch=true"

// With -short, both are nil.
var (
	program *kubeapiserver.Program
	shared  *kubeapiserver.Server // that tests use unless they need one of their own
)

func TestMain(m *testing.M) {
	flag.Parse()
	if testing.Short() {
		os.Exit(m.Run())
	}
	code := 1
	if err := start(context.Background()); err != nil {
		log.Print(err)
	} else {
		code = m.Run()
	}
	if err := stop(); err != nil {
		log.Print(err)
		code = 1
	}
	os.Exit(apiserver.ExitCode(code))
}

// start builds the program and starts the shared API server.
func start(ctx context.Context) (err error) {
	begun := time.Now()
	if program, err = kubeapiserver.Build(ctx); err != nil {
		return err
	}
	built := time.Now()
	if shared, err = program.Start(ctx, selects); err != nil {
		return err
	}
	log.Printf("kube-apiserver was built in %v, and was ready after %v",
		built.Sub(begun).Round(time.Millisecond), time.Since(built).Round(time.Millisecond))
	return nil
}

// stop ends the processes that start started.
func stop() (err error) {
	if shared != nil {
		err = shared.Stop()
	}
	if program != nil {
		err = errors.Join(err, program.Remove())
	}
	return err
}
