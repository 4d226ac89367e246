// Command bench compares this library with client-go's shared informer. It runs both in one
// process on the same work and prints one table. RESULTS.md explains the measurements.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"runtime/pprof"
)

// config holds the values of the flags.
type config struct {
	quick      bool
	rounds     int
	only       string
	write      string
	cpuprofile string
}

func main() {
	if isChild(os.Args) {
		exit(beChild(os.Stdin, os.Stdout, os.Args[2]))
	}
	if isSharing(os.Args) {
		exit(beSharing(os.Stdout, os.Args[2]))
	}
	var c config
	flag.BoolVar(&c.quick, "quick", false, "smaller sizes and fewer rounds")
	flag.IntVar(&c.rounds, "rounds", 0, "how often each figure is measured (default: 5, or 2 if -quick)")
	flag.StringVar(&c.only, "run", "", "only the sections whose name matches this regular expression")
	flag.StringVar(&c.write, "write", "", "write RESULTS.md and results.svg to this directory (default: only print)")
	flag.StringVar(&c.cpuprofile, "cpuprofile", "", "write a CPU profile to this file")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, c)
	stop()
	exit(err)
}

// exit ends the process. It prints err, if there is one.
func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func run(ctx context.Context, c config) (err error) {
	sz := fullSizes
	if c.quick {
		sz = quickSizes
	}
	if c.rounds < 0 {
		return fmt.Errorf("-rounds is %d, less than 0", c.rounds)
	}
	if c.rounds > 0 {
		sz.rounds = c.rounds
	}
	chosen, err := choose(sections(sz, goTest), c.only)
	if err != nil {
		return err
	}
	if c.cpuprofile != "" {
		stop, err := profile(c.cpuprofile)
		if err != nil {
			return fmt.Errorf("-cpuprofile: %w", err)
		}
		defer func() { err = errors.Join(err, stop()) }()
	}
	results, failed := measureAll(ctx, chosen, sz.rounds)
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	fmt.Print(text(results))
	if c.write != "" {
		failed = errors.Join(failed, writeReport(c.write, results, currentSetting(sz.rounds)))
	}
	return failed
}

// choose returns the sections whose names match pattern.
func choose(all []section, pattern string) (chosen []section, err error) {
	matching, err := regexp.Compile(pattern)
	if err != nil {
		return nil, fmt.Errorf("-run: %w", err)
	}
	for _, s := range all {
		if matching.MatchString(s.name) {
			chosen = append(chosen, s)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("-run: no section matches %q", pattern)
	}
	return chosen, nil
}

// measureAll runs every section. If a section fails, the others still run.
func measureAll(ctx context.Context, chosen []section, rounds int) (results []result, failed error) {
	for _, s := range chosen {
		if ctx.Err() != nil {
			return results, ctx.Err()
		}
		r := runSection(ctx, s, rounds, func(round int) {
			fmt.Fprintf(os.Stderr, "\r%-14s round %d of %d ", s.name, round, rounds)
		})
		if r.err != nil && !errors.Is(r.err, errNoBenchmark) {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", s.name, r.err))
		}
		results = append(results, r)
	}
	fmt.Fprintf(os.Stderr, "\r%40s\r", "")
	return results, failed
}

// profile writes a CPU profile to a file until stop is called.
func profile(file string) (stop func() error, err error) {
	f, err := os.Create(file)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() error { pprof.StopCPUProfile(); return f.Close() }, nil
}
