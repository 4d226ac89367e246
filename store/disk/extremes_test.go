package disk_test

import (
	"fmt"
	"testing"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/extremes"
	"github.com/customcacheinformer/informer/internal/sample"
	"github.com/customcacheinformer/informer/store/disk"
)

func TestEachNumberWorksAtItsExtremesOrIsRefused(t *testing.T) {
	extremes.Run(t, extremes.Table{Trials: map[string]extremes.Trial{
		"disk.Options.Durability": extremes.Field("max -1 min", nil, func(t *testing.T, opts disk.Options) error {
			s, err := tryOpen(t, newPath(t), sample.ConfigMap("", ""), opts)
			if err == nil {
				err = add(s, sample.ConfigMap("a", "b"))
			}
			return err
		}),
		"disk.Store.Scan(limit)": extremes.Number("0 -1 min", func(t *testing.T, limit int) error {
			s := open(t, newPath(t), sample.ConfigMap("", ""), disk.Options{Durability: disk.SurviveProcess})
			all := make([]informer.AnyObject, 2000) // so that Scan reads in several steps
			for n := range all {
				all[n] = sample.ConfigMap("a", fmt.Sprint(n))
			}
			must(t, add(s, all...))
			objs, err := s.Scan(t.Context(), "", limit)
			if err == nil && len(objs) != len(all) {
				t.Errorf("Scan has returned %d objects, want %d", len(objs), len(all))
			}
			return err
		}),
	}}, "./...")
}
