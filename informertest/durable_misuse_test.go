package informertest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
)

func TestADurableRefusesToBeUsedWrongly(t *testing.T) {
	apply := func(changes ...informer.Change) func(ctx context.Context, d *informertest.Durable) error {
		return func(ctx context.Context, d *informertest.Durable) error { return d.Apply(ctx, changes, "20") }
	}
	put := func(key string, obj informer.AnyObject) informer.Change {
		return informer.Change{Entry: informer.Entry{Key: key, Object: obj}}
	}
	other := func(name string) informer.Change {
		return informer.Change{Entry: informer.Entry{Key: "default/" + name, Object: incarnation(name, "", "-other")}, Delete: true}
	}
	for name, c := range map[string]struct {
		do   func(ctx context.Context, d *informertest.Durable) error
		want []string // texts that the error must contain
	}{
		"apply of nil":                     {apply(add("c", "1"), put("default/d", nil)), []string{"apply", "change 1", "default/d", "nil"}},
		"apply of a nil pointer":           {apply(add("c", "1"), put("default/d", (*corev1.ConfigMap)(nil))), []string{"apply", "change 1", "nil"}},
		"apply of an object without name":  {apply(put("default/a", configMap("", "1"))), []string{"apply", "no name"}},
		"apply without a key":              {apply(put("", configMap("a", "1"))), []string{"apply", "no key"}},
		"a delete of another object":       {apply(add("c", "1"), other("a")), []string{"default/a", "uid-a-other", `"uid-a"`}},
		"a delete of one before the added": {apply(add("d", "1"), other("d")), []string{"default/d", "uid-d-other"}},
		"a scan of nothing":                {func(ctx context.Context, d *informertest.Durable) error { _, err := d.Scan(ctx, "x", 0); return err }, []string{"scan", `"x"`, "limit"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := durableOf(t)
			if err := d.Err(); err != nil {
				t.Fatal(err)
			}
			err := c.do(t.Context(), d)
			for _, want := range c.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, which does not contain %q", err, want)
				}
			}
			wantHeld(t, d, asMade)
			_, _ = d.Scan(t.Context(), "", -1)
			if got := d.Err(); !errors.Is(got, err) {
				t.Errorf("the first error is remembered as %v", got)
			}
			if got := d.Reopen().Err(); !errors.Is(got, err) {
				t.Errorf("when it is reopened the first error is %v", got)
			}
		})
	}
}

func TestADeleteMayBeOfAMissingObject(t *testing.T) {
	d := durableOf(t)
	if err := d.Apply(t.Context(), []informer.Change{del("c"), add("d", "1"), del("d"), addAgain("d", "2")}, "20"); err != nil {
		t.Error(err)
	}
	wantHeld(t, d, "20: a=1 b=1 d=2, gone: uid-c uid-d uid-gone")
}

func TestAnApplyThatHasFailedMustBeMadeAgain(t *testing.T) {
	failing := errors.New("mine")
	for name, c := range map[string]struct {
		err   error
		first func(d *informertest.Durable) // runs before another Apply
		want  bool                          // whether that Apply is refused
	}{
		"another one is refused":              {failing, func(*informertest.Durable) {}, true},
		"with another bookmark it is refused": {failing, nil, true},
		"until it has succeeded":              {failing, func(d *informertest.Durable) { _ = d.Apply(context.Background(), nil, "20") }, false},
		"until another informer begins":       {failing, func(d *informertest.Durable) { _, _ = d.Resume(context.Background()) }, false},
		"but not if it was refused for good":  {fmt.Errorf("%w", informer.ErrPermanent), func(*informertest.Durable) {}, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := durableOf(t)
			d.Fail(func(string, string) error { return c.err })
			_ = d.Apply(t.Context(), nil, "20")
			d.Heal()
			changes := []informer.Change{add("c", "1")}
			if c.first != nil {
				c.first(d)
			} else {
				changes = nil
			}
			err := d.Apply(t.Context(), changes, "30")
			if refused := err != nil && strings.Contains(err.Error(), "must be repeated first"); refused != c.want || !errors.Is(d.Err(), err) {
				t.Errorf("apply returned %v, remembered is %v", err, d.Err())
			}
		})
	}
}

func TestApplyAndForgetAtOnceAreRefused(t *testing.T) {
	for _, first := range durableOps {
		for _, second := range durableOps {
			if alone := []string{"apply", "forget"}; !slices.Contains(alone, first.op) || !slices.Contains(alone, second.op) {
				continue
			}
			t.Run(first.op+" and "+second.op, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					d := durableOf(t)
					d.Delay(time.Minute)
					done := make(chan error, 1)
					go func() { done <- first.do(t.Context(), d) }()
					synctest.Wait()
					if err := second.do(t.Context(), d); err == nil || !strings.Contains(err.Error(), "under way") {
						t.Errorf("the second returned %v", err)
					}
					if err := <-done; err != nil {
						t.Errorf("the first returned %v", err)
					}
					if err := d.Err(); err == nil || !strings.Contains(err.Error(), second.op) {
						t.Errorf("remembered is %v", err)
					}
				})
			})
		}
	}
}
