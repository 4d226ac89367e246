package longwait_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/customcacheinformer/informer/internal/longwait"
)

// logged returns a ctx with a logger, and a function that returns the texts and values of the
// lines that were logged with it.
func logged(t *testing.T) (ctx context.Context, lines func() [][]any) {
	logger := ktesting.NewLogger(ktesting.NopTL{}, ktesting.NewConfig(ktesting.BufferLogs(true)))
	return klog.NewContext(t.Context(), logger), func() (all [][]any) {
		for _, line := range logger.GetSink().(ktesting.Underlier).GetBuffer().Data() {
			all = append(all, append([]any{line.Message}, line.ParameterKVList...))
		}
		return all
	}
}

func check(t *testing.T, when string, got [][]any, want ...[]any) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateErrors()); diff != "" {
		t.Errorf("%s, the log is (-want +got):\n%s", when, diff)
	}
}

func TestALongWaitIsLoggedOnceAndOnceMoreWhenItEnds(t *testing.T) {
	failure := errors.New("mine")
	for end, err := range map[string]error{"success": nil, "failure": failure} {
		t.Run(end, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, lines := logged(t)
				begun := time.Now()
				over := longwait.Announce(ctx, func() []any { return []any{"informer", "Pod", "asked after", time.Since(begun)} })
				time.Sleep(longwait.Patience - 1)
				synctest.Wait()
				check(t, "before 30 s", lines())
				time.Sleep(time.Hour)
				first := []any{"Still waiting", "informer", "Pod", "asked after", longwait.Patience}
				check(t, "after an hour", lines(), first)
				over(err)
				second := []any{"The wait is over", "informer", "Pod", "waited", time.Hour + longwait.Patience}
				if err != nil {
					second = append(second, "err", err)
				}
				check(t, "at the end", lines(), first, second)
			})
		})
	}
}

// A bubble must not end while a goroutine is left in it.
func TestAWaitThatEndsEarlyLogsNothingAndLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, lines := logged(t)
		for _, d := range []time.Duration{0, longwait.Patience - 1} {
			over := longwait.Announce(ctx, func() []any { t.Error("it asks for what is missing"); return nil })
			time.Sleep(d)
			over(nil)
		}
		time.Sleep(time.Hour)
		check(t, "in the end", lines())
	})
}

func TestAWaitThatHasNothingMoreToWaitForLogsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, lines := logged(t)
		over := longwait.Announce(ctx, func() []any { return nil })
		time.Sleep(time.Hour)
		over(nil)
		check(t, "in the end", lines())
	})
}

func TestTheEndOfAWaitComesAfterItsFirstLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, lines := logged(t)
		over := longwait.Announce(ctx, func() []any { time.Sleep(time.Minute); return []any{"informer", "Pod"} })
		begin := time.Now()
		time.Sleep(longwait.Patience)
		synctest.Wait()
		over(nil) // while it is being asked what is missing
		if waited := time.Since(begin); waited != longwait.Patience+time.Minute {
			t.Errorf("over has returned after %v", waited)
		}
		check(t, "in the end", lines(), []any{"Still waiting", "informer", "Pod"}, []any{"The wait is over", "informer", "Pod", "waited", 90 * time.Second})
	})
}

func TestAPartOfALongerWaitLogsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, lines := logged(t)
		part := longwait.Announce(longwait.Quiet(ctx), func() []any { return []any{"informer", "Pod"} })
		time.Sleep(time.Hour)
		part(errors.New("mine"))
		check(t, "in the end", lines())
	})
}
