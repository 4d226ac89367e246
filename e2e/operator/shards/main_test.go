package main

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/customcacheinformer/informer/e2e/apiserver"
	"github.com/customcacheinformer/informer/e2e/operator/internal/cluster"
)

func TestMain(m *testing.M) { os.Exit(apiserver.ExitCode(m.Run())) }

// TestReplicasOfTheOperatorShareTheWebsites does what the command does. With -short it leaves out
// the steps in which a session must end, because that takes 15 s each.
func TestReplicasOfTheOperatorShareTheWebsites(t *testing.T) {
	which := steps
	if testing.Short() {
		t.Log("without a replica that is killed or paused, which takes a minute: make soak")
		which = quick
	}
	var out strings.Builder
	// The time only detects a hang: the machine may be busy.
	err := cluster.Demonstrate(t.Context(), 10*time.Minute, func(ctx context.Context, program string) error {
		return run(ctx, program, which, &out)
	})
	if err != nil {
		t.Errorf("%v\n%s", err, out.String())
	}
	t.Log(out.String())
}
