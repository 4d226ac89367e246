package enqueue_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/enqueue"
	"github.com/customcacheinformer/informer/informertest"
)

func TestThePausesBetweenAttemptsAreThoseOfTheOptions(t *testing.T) {
	const ms = time.Millisecond
	for _, test := range []struct {
		base, most time.Duration
		want       []time.Duration
	}{
		{0, 0, []time.Duration{5 * ms, 10 * ms, 20 * ms, 40 * ms, 80 * ms}},
		{time.Second, 3 * time.Second, []time.Duration{time.Second, 2 * time.Second, 3 * time.Second, 3 * time.Second, 3 * time.Second}},
		{time.Second, time.Second, []time.Duration{time.Second, time.Second, time.Second, time.Second, time.Second}},
		{time.Minute, 0, []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 16 * time.Minute}},
		{10 * time.Minute, 0, []time.Duration{10 * time.Minute, 1000 * time.Second, 1000 * time.Second, 1000 * time.Second, 1000 * time.Second}},
		{time.Hour, 0, []time.Duration{time.Hour, time.Hour, time.Hour, time.Hour, time.Hour}},
		{0, 12 * ms, []time.Duration{5 * ms, 10 * ms, 12 * ms, 12 * ms, 12 * ms}},
		{0, ms, []time.Duration{ms, ms, ms, ms, ms}},
	} {
		t.Run(fmt.Sprint(test.base, " ", test.most), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pods := newPods(t, "pods", informertest.NewSource(pod("a")))
				var pauses []time.Duration
				var last time.Time
				failed := make(chan struct{})
				c := newController(t, func(context.Context, key) (time.Duration, error) {
					if !last.IsZero() {
						pauses = append(pauses, time.Since(last))
					}
					if last = time.Now(); len(pauses) == len(test.want) {
						close(failed)
						return 0, nil
					}
					return 0, errors.New("no luck")
				}, enqueue.Options{Name: "website", BaseDelay: test.base, MaxDelay: test.most, ErrorHandler: func(context.Context, error) {}}, enqueue.For(pods))
				var group informer.Group
				stop := runGroup(t, &group, pods, c)
				<-failed
				if err := stop(); err != nil {
					t.Error(err)
				}
				if fmt.Sprint(pauses) != fmt.Sprint(test.want) {
					t.Errorf("the pauses were %v, want %v", pauses, test.want)
				}
			})
		})
	}
}

func TestPausesThatCannotBeUsedAreRefused(t *testing.T) {
	pods := newPods(t, "pods", informertest.NewSource(pod("a")))
	for want, opts := range map[string]enqueue.Options{
		"Options.BaseDelay is -1ns, less than 0":                    {BaseDelay: -1},
		"Options.MaxDelay is -1ns, less than 0":                     {MaxDelay: -1},
		"Options.BaseDelay is 1m0s, more than Options.MaxDelay, 1s": {BaseDelay: time.Minute, MaxDelay: time.Second},
	} {
		opts.Name = "website"
		if _, err := enqueue.NewController(nothing, opts, enqueue.For(pods)); err == nil || err.Error() != "enqueue: NewController: "+want {
			t.Errorf("NewController returned %v, want %s", err, want)
		}
	}
}
