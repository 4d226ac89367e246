package informertest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
)

func TestInformersUseADurableRightlyHoweverTheyEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(configMap("o1", "first"), configMap("o2", "first"))
		d := informertest.NewDurable()
		for process := range 6 {
			d.LoseOnCrash(process % 3)
			runOver(t, d, src, process)
			d = d.Reopen()
		}
		var stored []any
		for _, e := range must(d.Scan(t.Context(), "", 100)) {
			stored = append(stored, e.Object)
		}
		wantSame(t, "the store", src, stored)
	})
}

// runOver runs an informer as one process does. Its store fails now and then and, except for
// the last process, crashes in the middle.
func runOver(t *testing.T, d *informertest.Durable, src *configMapSource, process int) {
	t.Helper()
	inf := must(informer.NewFrom(src, informer.Options[*corev1.ConfigMap]{
		Durable: d, ErrorHandler: func(context.Context, error) {},
	}))
	var r informertest.Recorder[*corev1.ConfigMap]
	must(inf.AddWatcher(&r, informer.WatcherOptions{}))
	stop := informertest.Run(t, inf)
	d.FailRandomly(uint64(process), 0.3)
	d.Delay(time.Millisecond)
	for i := range 200 {
		if name := fmt.Sprint("o", i%23); i%5 == 4 {
			_, _ = src.Delete(keyOf(name))
		} else {
			src.Apply(configMap(name, fmt.Sprint(process, "-", i)))
		}
		switch {
		case i == 150 && process < 5:
			d.Crash()
		case i%50 == 49:
			release := d.Hang()
			src.Expire()
			time.Sleep(time.Minute)
			release()
		case i%7 == 0:
			time.Sleep(time.Duration(i) * time.Millisecond)
		}
	}
	if process == 5 {
		time.Sleep(24 * time.Hour)
		d.LoseOnCrash(0)
	}
	stop()
	if err := errors.Join(r.Err(), d.Err()); err != nil {
		t.Error(err)
	}
}
