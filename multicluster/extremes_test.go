package multicluster_test

import (
	"testing"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/extremes"
	"github.com/customcacheinformer/informer/multicluster"
)

func TestEachNumberWorksAtItsExtremesOrIsRefused(t *testing.T) {
	set, _ := newSet()
	leaves := extremes.Number("max 0", func(_ *testing.T, leave informer.Leave) error {
		_, err := multicluster.Follow(set, lists, leave)
		return err
	})
	extremes.Run(t, extremes.Table{Trials: map[string]extremes.Trial{"multicluster.Follow(leave)": leaves}}, "./...")
}
