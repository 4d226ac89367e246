// Package lab provides the parts that measuring programs share: their main function, child processes, rounds,
// medians, tables, memory and CPU time, and a source of many Pods.
//
// Such a program calls Main with a function that measures and writes a report in Markdown. A subject that
// needs its own heap and CPU time is a role of the program, which StartChild or Measure runs in a child
// process. Rounds measures all subjects in turn. The report shows the median of the rounds, which MedianOf
// returns.
package lab

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/pprof"
	"strings"
	"sync"
	"time"
)

// Main is the main function of a measuring program. It defines the flags -write and -cpuprofile, parses all
// flags, and calls run, which must write the report. ctx ends on an interrupt. Main does not return: it
// ends the process, with code 1 after an error.
func Main(roles Roles, run func(ctx context.Context, report io.Writer) error) {
	roles.Play()
	file := flag.String("write", "", "also write the report to this `file`")
	profile := flag.String("cpuprofile", "", "write a CPU profile of this process to this `file`")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	var profiled bytes.Buffer
	if *profile != "" {
		_ = pprof.StartCPUProfile(&profiled) // no other profile is under way
	}
	var report strings.Builder
	err := run(ctx, io.MultiWriter(os.Stdout, &report))
	stop()
	if *profile != "" {
		pprof.StopCPUProfile()
		err = errors.Join(err, os.WriteFile(*profile, profiled.Bytes(), 0o644))
	}
	if *file != "" && err == nil {
		err = os.WriteFile(*file, []byte(report.String()), 0o644)
	}
	exit(err)
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Positive returns an error if one of the flags with these names is not more than 0.
func Positive(flags ...string) error {
	for _, name := range flags {
		if text := flag.Lookup(name).Value.String(); text == "0" || text == "0s" || text[0] == '-' {
			return fmt.Errorf("-%s is %s, which is not more than 0", name, text)
		}
	}
	return nil
}

// Rounds measures each subject in each of n rounds. Each round begins with another subject, so that no
// subject has an advantage because it is first, or because the machine becomes slower. Rounds stops at the
// first error and returns it.
func Rounds[S any](n int, subjects []S, measure func(round int, s S) error) error {
	defer Progress("")
	for round := range n {
		for i := range subjects {
			s := subjects[(i+round)%len(subjects)]
			Progress("round %d of %d: %v", round+1, n, s)
			if err := measure(round, s); err != nil {
				return fmt.Errorf("%v: %w", s, err)
			}
		}
	}
	return nil
}

// Progress shows on standard error what the program is doing, if standard error is a terminal.
func Progress(format string, parts ...any) {
	if info, err := os.Stderr.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return
	}
	fmt.Fprintf(os.Stderr, "\r%-78s\r", fmt.Sprintf(format, parts...))
}

// Divide calls do for 0 to n-1 from several goroutines, and waits for them. A goroutine stops at its first
// error. Divide returns all errors, joined.
func Divide(n, goroutines int, do func(i int) error) error {
	errs := make([]error, goroutines)
	var all sync.WaitGroup
	for g := range goroutines {
		all.Go(func() {
			for i := g; i < n && errs[g] == nil; i += goroutines {
				errs[g] = do(i)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// Pace calls do n times a second for the duration during. It stops at the first error of do or the end of
// ctx, and returns the error or the cause.
func Pace(ctx context.Context, n int, during time.Duration, do func() error) error {
	ticker := time.NewTicker(time.Second / time.Duration(n))
	defer ticker.Stop()
	for range int(during.Seconds() * float64(n)) {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}

// Poll calls done at intervals until it returns true or an error, and returns that error. It returns an
// error after five minutes, and the cause of ctx if ctx ends.
func Poll(ctx context.Context, every time.Duration, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 5*time.Minute, errors.New("that takes more than five minutes"))
	defer cancel()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-time.After(every):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
