package enqueue_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/klog/v2"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/enqueue"
)

// Without DrainTimeout the end of ctx ends calls and queue, even if keys wait for a retry, for
// their time or for a worker.
func TestAStopDuringARetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, enqueue.Options{}, func(ctx context.Context, key string) (time.Duration, error) {
			switch key {
			case "fails":
				return 0, errors.New("no")
			case "later":
				return time.Minute, nil
			}
			<-ctx.Done()
			return 0, fmt.Errorf("asking: %w", ctx.Err())
		})
		r.add("fails", "later", "blocks", "waits")
		r.expect("fails@0", "later@0", "blocks@0")
		r.expectErrors("fails: no")
		r.stop()
		if err := <-r.done; err != nil || time.Since(r.born) > 0 {
			t.Errorf("Run returned %v after %v", err, time.Since(r.born))
		}
		r.expect()
		r.expectErrors() // a cancelled call is not a failure
	})
}

// twoSeconds is a call that heeds its ctx, except that the key fails is not a success.
func twoSeconds(ctx context.Context, key string) (time.Duration, error) {
	if key == "fails" {
		return 0, errors.New("no")
	}
	select {
	case <-time.After(2 * time.Second):
	case <-ctx.Done():
	}
	return 0, ctx.Err()
}

// With DrainTimeout calls go on, and the keys in the queue are reconciled. Keys that wait for
// a later time are not.
func TestAStopThatDrains(t *testing.T) {
	for _, test := range []struct {
		drain, lasts time.Duration
		calls        []string
		errors       []string
	}{
		{10 * time.Second, 6 * time.Second, []string{"b@2", "c@4", "fails@6"}, []string{"fails: no (given up)"}},
		{3 * time.Second, 3 * time.Second, []string{"b@2"}, nil}, // b is cancelled after 3 s, and c does not begin
	} {
		synctest.Test(t, func(t *testing.T) {
			r := start(t, enqueue.Options{DrainTimeout: test.drain}, twoSeconds)
			r.add("a", "b", "c", "fails")
			r.expect("a@0")
			r.stop()
			synctest.Wait()
			r.add("too late")
			if err := <-r.done; err != nil || time.Since(r.born) != test.lasts {
				t.Errorf("Run returned %v after %v", err, time.Since(r.born))
			}
			r.expect(test.calls...)
			r.expectErrors(test.errors...)
		})
	}
}

// Once ctx is done, a call that returns the error of ctx has not failed, but one that
// returns another error has. While ctx lives, context.Canceled is nothing special. The ctx of
// a drain, and of ErrorHandler, has the values of Run's ctx.
func TestErrorsAtAStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type name struct{}
		var values, errs []string
		note := func(ctx context.Context, what string) {
			values = append(values, fmt.Sprint(what, " ", ctx.Value(name{})))
		}
		r := prepare(t, enqueue.Options{DrainTimeout: time.Second, ErrorHandler: func(ctx context.Context, err error) {
			note(ctx, "ErrorHandler")
			errs = append(errs, err.Error())
		}}, func(ctx context.Context, key string) (time.Duration, error) {
			note(ctx, key)
			if key == "alive" {
				return 0, fmt.Errorf("of something else: %w: %w", context.Canceled, informer.ErrPermanent)
			}
			<-ctx.Done()
			return 0, errors.New("and something is wrong")
		})
		r.run(context.WithValue(t.Context(), name{}, "value"))
		r.add("alive", "ends")
		synctest.Wait()
		r.stop()
		r.wait()
		if got := strings.Join(values, ", "); got != "alive value, ErrorHandler value, ends value, ErrorHandler value" {
			t.Errorf("values of ctx: %s", got)
		}
		if got := strings.Join(errs, "\n"); got != "website alive: of something else: context canceled: permanent failure (given up)\n"+
			"website ends: and something is wrong (given up)" {
			t.Errorf("reported\n%s", got)
		}
	})
}

// Run logs the key of a call that does not return, and waits for the call.
func TestACallThatDoesNotReturnIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		r := prepare(t, enqueue.Options{Workers: 2}, func(ctx context.Context, key string) (time.Duration, error) {
			klog.FromContext(ctx).Info("In reconcile")
			if key == "stuck" {
				<-release
			}
			return 0, nil
		})
		ctx, log := logged(t.Context(), t)
		r.run(ctx)
		r.add("done", "stuck")
		synctest.Wait()
		r.stop()
		time.Sleep(9 * time.Second)
		if strings.Contains(log(), "cannot stop") {
			t.Errorf("logged too early:\n%s", log())
		}
		time.Sleep(2 * time.Second)
		select {
		case err := <-r.done:
			t.Errorf("Run has returned %v", err)
		default:
		}
		close(release)
		r.wait()
		for _, want := range []string{
			`In reconcile queue="website" key="stuck"`,
			`The workers cannot stop until calls return queue="website" keys=["stuck"]`,
		} {
			if !strings.Contains(log(), want) {
				t.Errorf("the log lacks %s:\n%s", want, log())
			}
		}
	})
}
