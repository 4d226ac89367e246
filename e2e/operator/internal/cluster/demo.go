package cluster

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/customcacheinformer/informer/e2e/internal/process"
)

// Main is the main function of a demonstration. It calls show like Demonstrate, and defines the flag that limits it.
func Main(patience time.Duration, show func(ctx context.Context, program string) error) {
	flag.DurationVar(&patience, "timeout", patience, "when to give up")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := Demonstrate(ctx, patience, show)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Demonstrate builds the example operator, and calls show with its file. Show has that time, without the build.
func Demonstrate(ctx context.Context, patience time.Duration, show func(ctx context.Context, program string) error) (err error) {
	dir, err := os.MkdirTemp("", "operator-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	program, err := process.Build(ctx, dir, Program) // the first build takes long
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("it is not done after %v", patience))
	defer cancel()
	return show(ctx, program)
}
