package shards

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// pages answers with pages of one object, in a namespace of the page's number. The second page has expired
// each time until the list continues with the present state.
type pages struct {
	cache.ListerWatcherWithContext
	offers bool // to go on
	asked  int
}

func (p *pages) ListWithContext(_ context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	p.asked++
	if opts.Continue == "old" {
		err := apierrors.NewResourceExpired("the continue parameter is too old")
		if p.offers {
			err.ErrStatus.Continue = "new"
		}
		return nil, err
	}
	next := map[string]string{"": "old", "new": "last"}[opts.Continue]
	return &corev1.ConfigMapList{
		ListMeta: metav1.ListMeta{Continue: next},
		Items:    []corev1.ConfigMap{{ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprint("ns-", opts.Continue), Name: "x"}}},
	}, nil
}

// Counting millions of objects takes longer than the API server remembers the state of the first page.
func TestACountContinuesWhenItsNextPageHasExpired(t *testing.T) {
	weights := map[string]int{}
	all := &pages{offers: true}
	if err := (&source{all: all}).count(t.Context(), weights); err != nil {
		t.Error(err)
	}
	if want := map[string]int{"ns-": 1, "ns-new": 1, "ns-last": 1}; !maps.Equal(weights, want) || all.asked != 4 {
		t.Errorf("%v in %d requests, want %v", weights, all.asked, want)
	}
	if err := (&source{all: &pages{}}).count(t.Context(), weights); !apierrors.IsResourceExpired(errors.Unwrap(err)) {
		t.Errorf("without an offer to go on: %v", err)
	}
}
