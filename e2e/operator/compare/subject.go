package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"time"

	"github.com/customcacheinformer/informer/e2e/internal/process"
	"github.com/customcacheinformer/informer/e2e/operator/compare/probe"
	"github.com/customcacheinformer/informer/e2e/operator/internal/cluster"
)

// subject is an operator under measurement: a process with a probe, and its figures from the
// beginning of the current phase.
type subject struct {
	process *process.Process
	front   *cluster.Front
	in      io.Writer
	out     *json.Decoder

	began time.Time
	calls cluster.Calls
	probe.Reading
}

// subjectProgram is the program of an operator and the flags to start it with.
type subjectProgram struct {
	file  string
	flags []string
}

// startSubject starts an operator and begins the first phase.
func startSubject(ctx context.Context, c *cluster.Cluster, program subjectProgram, workers int) (s *subject, err error) {
	s = &subject{}
	if s.front, err = c.Front(nil); err != nil {
		return nil, err
	}
	flags := append([]string{"-kubeconfig", s.front.Kubeconfig, "-workers", strconv.Itoa(workers)}, program.flags...)
	cmd := exec.CommandContext(ctx, program.file, flags...)
	cmd.Env = append(os.Environ(), "GOGC=100", "GOMAXPROCS="+strconv.Itoa(runtime.NumCPU()))
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err1 != nil || err2 != nil {
		return nil, fmt.Errorf("pipes: %w, %w", err1, err2)
	}
	s.in, s.out = in, json.NewDecoder(out)
	s.began = time.Now()
	if s.process, err = process.Start(cmd); err != nil {
		s.front.Close()
	}
	return s, err
}

// ask sends the probe a request and returns its answer.
func (s *subject) ask(r probe.Request) (reading probe.Reading, err error) {
	if err = json.NewEncoder(s.in).Encode(r); err == nil {
		err = s.out.Decode(&reading)
	}
	if err != nil {
		err = fmt.Errorf("asking the operator: %w\n%s", err, s.process.Log)
	}
	return reading, err
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
	for time.Since(since) < still {
		r, err := s.ask(probe.Request{})
		if err != nil {
			return err
		}
		if now := [2]int{r.Reconciles, s.front.Calls().Writes()}; now != last {
			last, since = now, time.Now()
		}
		if err := wait(ctx, still/10); err != nil {
			return err
		}
	}
	return nil
}

// stop stops the operator. It returns an error unless the operator exits without one.
func (s *subject) stop(ctx context.Context) error {
	defer s.front.Close()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return s.process.Stop(ctx)
}
