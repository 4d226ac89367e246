// Command bench compares this library with client-go's shared informer. It runs both in one
// process on the same work and prints one table. RESULTS.md explains the measurements.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"regexp"
	"slices"
	"time"

	"github.com/customcacheinformer/informer/internal/lab"
)

var roles = lab.Roles{
	"sharing": lab.Once(sharing.measure), "decoding": lab.Once(decoding.measure), "starting": lab.Once(starting.measureMany),
	"sinking": lab.Once(starting.measureSink), "clustering": lab.Once(fleet.measure),
}

func main() {
	quick := flag.Bool("quick", false, "smaller sizes and fewer rounds")
	only := flag.String("run", "", "only the sections whose name matches this regular expression")
	rounds := flag.Int("rounds", 0, "how many rounds; 0 is 5, and 2 with -quick")
	lab.Main(roles, func(ctx context.Context, out io.Writer) error {
		sz := fullSizes
		if *quick {
			sz = quickSizes
		}
		if *rounds > 0 {
			sz.rounds = *rounds
		}
		chosen, err := choose(sections(sz), *only)
		if err != nil {
			return err
		}
		results, failed := measureAll(ctx, chosen, sz.rounds)
		if ctx.Err() != nil {
			return errors.New("interrupted")
		}
		report(out, results, sz.rounds)
		return failed
	})
}

func choose(all []section, pattern string) ([]section, error) {
	matching, err := regexp.Compile(pattern)
	if err != nil {
		return nil, fmt.Errorf("-run: %w", err)
	}
	chosen := slices.DeleteFunc(all, func(s section) bool { return !matching.MatchString(s.name) })
	if len(chosen) == 0 {
		return nil, fmt.Errorf("-run: no section matches %q", pattern)
	}
	return chosen, nil
}

// measureAll runs every section. If a section fails, the others still run.
func measureAll(ctx context.Context, chosen []section, rounds int) (results []result, failed error) {
	for _, s := range chosen {
		r := s.run(ctx, rounds)
		failed = errors.Join(failed, r.err)
		results = append(results, r)
	}
	return results, failed
}

// sizes is the amount of work of each section.
type sizes struct {
	rounds      int
	events      int // of the sections that measure the time per event
	ticks       int // milliseconds of the section about latency
	cached      int // objects in the sections about the first list, joining and memory
	pods        int // of a large cluster
	idle        int // idle watchers
	joins       int // in each round
	joiners     int // of the storm
	resources   int // custom resources of the section about framing
	framedPods  int
	each        int           // custom resources of each informer that starts with others
	bursts      int           // updates
	writing     time.Duration // of the section about the store
	benchtime   string
	clusters    int // in memory
	clusterPods int
	remotes     int // clusters over TLS
	remotePods  int
	rest        time.Duration
}

var (
	fullSizes = sizes{5, 200_000, 2000, 100_000, 100_000, 1000, 5, 100, 20_000, 30_000, 5000, 200_000, time.Second, "0.5s", 1000, 1000, 200, 100, 10 * time.Second}
	// quickSizes take less than two minutes in all.
	quickSizes = sizes{2, 50_000, 250, 20_000, 5000, 300, 3, 100, 2000, 2000, 200, 10_000, 50 * time.Millisecond, "0.1s", 100, 100, 50, 100, 200 * time.Millisecond}
)

// sections returns all sections, in the order of the table.
func sections(sz sizes) []section {
	return []section{
		wholeWaySection(sz),
		latencySection(sz),
		memorySection(sz),
		podsSection(sz),
		shareSection(sz),
		storeSection(sz),
		readersSection(sz),
		firstListSection(sz),
		namespacesSection(sz),
		clustersSection(sz),
		joiningSection(sz),
		stormSection(sz),
		distributionSection(sz),
		workersSection(sz),
		framingSection(sz),
		startSection(sz),
		observerSection(sz),
	}
}
