package valkey_test

import (
	"fmt"
	"testing"

	"github.com/customcacheinformer/informer/internal/extremes"
	"github.com/customcacheinformer/informer/internal/sample"
	"github.com/customcacheinformer/informer/store/valkey"
	"github.com/customcacheinformer/informer/store/valkey/internal/server"
)

func TestEachNumberWorksAtItsExtremesOrIsRefused(t *testing.T) {
	srv := server.Start(t)
	try := func(t *testing.T, opts valkey.Options) error {
		opts.Identity = newIdentity()
		s, err := valkey.Open(t.Context(), srv.Client(), &corev1.ConfigMap{}, opts)
		if err == nil {
			err = s.Add(sample.ConfigMap("a", "b"))
		}
		return err
	}
	extremes.Run(t, extremes.Table{Trials: map[string]extremes.Trial{
		"valkey.Options.Token": extremes.Field("max -1 min", nil, try),
		"valkey.Options.Log":   extremes.Field("max -1 min", nil, try),
		"valkey.Store.Scan(limit)": extremes.Number("0 -1 min", func(t *testing.T, limit int) error {
			s := open(t, srv.Client(), sample.ConfigMap("", ""), valkey.Options{Identity: newIdentity()})
			all := make([]any, 2000) // so that Scan reads in several steps
			for n := range all {
				all[n] = sample.ConfigMap("a", fmt.Sprint(n))
			}
			if err := s.Replace(all, ""); err != nil {
				t.Fatal(err)
			}
			objs, err := s.Scan(t.Context(), "", limit)
			if err == nil && len(objs) != len(all) {
				t.Errorf("Scan has returned %d objects, want %d", len(objs), len(all))
			}
			return err
		}),
	}}, "./...")
}
