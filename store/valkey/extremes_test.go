package valkey_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/customcacheinformer/informer"
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
			err = add(s, sample.ConfigMap("a", "b"))
		}
		return err
	}
	identity := newIdentity()
	s := open(t, srv.Client(), sample.ConfigMap("", ""), valkey.Options{Identity: identity})
	for _, o := range [][2]string{{"a", "5"}, {"b", "6"}} {
		must(t, put(s, o[0], o[1]))
	}
	list := func(t *testing.T, opts metav1.ListOptions) error {
		list, err := newSource(t, srv.Client(), identity).ListWithContext(t.Context(), opts)
		if err == nil && len(list.(*metav1.List).Items) != 2 {
			t.Errorf("the list has %d objects, want 2", len(list.(*metav1.List).Items))
		}
		return err
	}
	watch := func(t *testing.T, opts metav1.ListOptions) error {
		opts.ResourceVersion = "5"
		w, err := newSource(t, srv.Client(), identity).WatchWithContext(t.Context(), opts)
		if err != nil {
			return err
		}
		defer w.Stop()
		if e, open := <-w.ResultChan(); !open || e.Type != "ADDED" {
			return fmt.Errorf("the watch begins with %v, want an added object", e)
		}
		return nil
	}
	extremes.Run(t, extremes.Table{Trials: map[string]extremes.Trial{
		"valkey.Options.Token": extremes.Field("max -1 min", nil, try),
		"valkey.Options.Log":   extremes.Field("max -1 min", nil, try),
		"valkey.Store.Scan(limit)": extremes.Number("0 -1 min", func(t *testing.T, limit int) error {
			s := open(t, srv.Client(), sample.ConfigMap("", ""), valkey.Options{Identity: newIdentity()})
			all := make([]informer.Change, 2000) // so that Scan reads in several steps
			for n := range all {
				all[n] = adding(sample.ConfigMap("a", fmt.Sprint(n)))
			}
			must(t, s.Apply(t.Context(), all, ""))
			objs, err := s.Scan(t.Context(), "", limit)
			if err == nil && len(objs) != len(all) {
				t.Errorf("Scan has returned %d objects, want %d", len(objs), len(all))
			}
			return err
		}),
		"valkey.Source.ListWithContext(opts).Limit":           extremes.Number("", func(t *testing.T, n int64) error { return list(t, metav1.ListOptions{Limit: n}) }),
		"valkey.Source.ListWithContext(opts).TimeoutSeconds":  extremes.Number("", func(t *testing.T, n int64) error { return list(t, metav1.ListOptions{TimeoutSeconds: &n}) }),
		"valkey.Source.WatchWithContext(opts).Limit":          extremes.Number("", func(t *testing.T, n int64) error { return watch(t, metav1.ListOptions{Limit: n}) }),
		"valkey.Source.WatchWithContext(opts).TimeoutSeconds": extremes.Number("", func(t *testing.T, n int64) error { return watch(t, metav1.ListOptions{TimeoutSeconds: &n}) }),
	}, Untried: map[string]string{
		"valkey.Source.List(opts)":  "it is ListWithContext",
		"valkey.Source.Watch(opts)": "it is WatchWithContext",
		"valkey.Status.":            "a figure",
	}}, "./...")
}
