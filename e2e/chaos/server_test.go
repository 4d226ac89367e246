package chaos_test

import (
	"context"
	"log"
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/client-go/dynamic"

	"github.com/customcacheinformer/informer/e2e/apiserver"
	"github.com/customcacheinformer/informer/e2e/internal/process"
	"github.com/customcacheinformer/informer/e2e/internal/stage"
)

const soakWrites = 100 * time.Millisecond // pause between two writes, over all kinds

// serve is an API server that also writes to itself all the time. It runs in its own process because it keeps
// what is written: a soak must measure only the informers.
func serve(struct{}) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	server, err := apiserver.Start(ctx)
	if err != nil {
		return err
	}
	defer server.Stop()
	w := &world{ctx: ctx}
	if w.client, err = dynamic.NewForConfig(server.Config()); err != nil {
		return err
	}
	kinds, random := allKinds(), rand.New(rand.NewPCG(1, 5))
	for _, k := range kinds {
		if _, err := server.InstallDefinition(ctx, k.definition()); err != nil {
			return err
		}
	}
	for range 600 { // from here on the number of objects stays about the same
		if err := w.write(kinds[random.IntN(len(kinds))], random); err != nil {
			return err
		}
	}
	var writing sync.WaitGroup
	defer writing.Wait()
	writing.Go(func() {
		for stage.Pass(ctx, soakWrites) {
			if err := w.write(kinds[random.IntN(len(kinds))], random); err != nil && ctx.Err() == nil {
				log.Print(err)
			}
		}
	})
	defer cancel()
	return process.Serve(server.Config())
}
