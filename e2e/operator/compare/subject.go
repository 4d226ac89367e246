package main

import (
	"context"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"time"

	"github.com/customcacheinformer/informer/e2e/operator/compare/probe"
	"github.com/customcacheinformer/informer/e2e/operator/internal/cluster"
	"github.com/customcacheinformer/informer/internal/lab"
)

// phase holds the measurements of an operator for one part of the work. Times are in seconds.
// Memory is in bytes, measured at the end of the part.
type phase struct {
	Wall, CPU, Peak, Anon, Heap float64
	Reconciles, Writes, Refused int
}

// subject is an operator under measurement: a process with a probe, and its figures from the
// beginning of the current phase.
type subject struct {
	process *lab.Child
	front   *cluster.Front

	began time.Time
	calls cluster.Calls
	probe.Reading
}

// startSubject starts an operator and begins the first phase.
func startSubject(ctx context.Context, c *cluster.Cluster, of side, workers int) (s *subject, err error) {
	s = &subject{}
	if s.front, err = c.Front(nil); err != nil {
		return nil, err
	}
	flags := append([]string{"-kubeconfig", s.front.Kubeconfig, "-workers", strconv.Itoa(workers)}, of.flags...)
	cmd := exec.CommandContext(ctx, of.file, flags...)
	cmd.Env = append(os.Environ(), "GOGC=100", "GOMAXPROCS="+strconv.Itoa(runtime.NumCPU()))
	s.began = time.Now()
	if s.process, err = lab.StartCommand(cmd); err != nil {
		s.front.Close()
	}
	return s, err
}

func (s *subject) ask(r probe.Request) (reading probe.Reading, err error) {
	return reading, s.process.Ask(r, &reading)
}

// begin begins the next phase.
func (s *subject) begin() (err error) {
	s.began, s.calls = time.Now(), s.front.Calls()
	s.Reading, err = s.ask(probe.Request{})
	return err
}

// end waits until the operator is idle, and returns its measurements since the phase began.
// The wall time of the phase ends when end is called, because the caller has then seen that
// the work is done.
func (s *subject) end(ctx context.Context) (phase, error) {
	f := phase{Wall: time.Since(s.began).Seconds()}
	if err := s.quiet(ctx); err != nil {
		return f, err
	}
	r, err := s.ask(probe.Request{Heap: true})
	if err != nil {
		return f, err
	}
	calls := s.front.Calls()
	f.CPU, f.Peak, f.Anon, f.Heap = r.CPU-s.CPU, r.Peak, r.Anon, r.Heap
	f.Reconciles = r.Reconciles - s.Reconciles
	f.Writes, f.Refused = calls.Writes()-s.calls.Writes(), calls.Refused()-s.calls.Refused()
	return f, nil
}

// quiet waits until nothing has been reconciled or written for half a second.
func (s *subject) quiet(ctx context.Context) error {
	const still = 500 * time.Millisecond
	last, since := [2]int{-1}, time.Now()
	return lab.Poll(ctx, still/10, func() (bool, error) {
		r, err := s.ask(probe.Request{})
		if now := [2]int{r.Reconciles, s.front.Calls().Writes()}; now != last {
			last, since = now, time.Now()
		}
		return time.Since(since) >= still, err
	})
}

// stop stops the operator. It returns an error unless the operator exits without one.
func (s *subject) stop() error {
	err := s.process.End()
	s.front.Close()
	return err
}

// wait waits for d, or until ctx ends.
func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
