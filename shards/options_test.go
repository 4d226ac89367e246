package shards_test

import (
	"strings"
	"testing"
	"time"

	"github.com/customcacheinformer/informer/shards"
)

func TestTimesThatDoNotFitAreRefused(t *testing.T) {
	w := newWorld(t, 0)
	for want, opts := range map[string]shards.Options{
		"Options.RenewEvery is 1ns, less than 100ms":     {Name: "test", RenewEvery: 1},
		"Options.Margin is 1ns, not from 100ms to 1m0s":  {Name: "test", Margin: 1},
		"Options.Margin is 1m1s, not from 100ms to 1m0s": {Name: "test", LeaseDuration: time.Hour, Margin: 61 * time.Second},
		"and Options.Margin, 14.9s, are together not less than Options.LeaseDuration, 15s": {
			Name: "test", RenewEvery: 100 * time.Millisecond, Margin: 15*time.Second - 100*time.Millisecond,
		},
	} {
		if _, err := shards.New(w.api, opts); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New returned %v, want %s", err, want)
		}
	}
	least := shards.Options{Name: "test", RenewEvery: 100 * time.Millisecond, Margin: 100 * time.Millisecond, LeaseDuration: time.Second}
	if _, err := shards.New(w.api, least); err != nil {
		t.Error(err)
	}
}
