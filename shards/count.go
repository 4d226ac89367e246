package shards

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// count adds the number of objects in each namespace to weights. It reads pages, so it never holds
// many objects. After some minutes, which is some millions of objects, the API server forgets the
// state of the first page. It then offers to continue with the current state.
func (s *source) count(ctx context.Context, weights map[string]int) error {
	opts := metav1.ListOptions{Limit: 500}
	for {
		list, err := s.all.ListWithContext(ctx, opts)
		if next := continued(err); next != "" && next != opts.Continue {
			opts.Continue = next
			continue
		}
		if err != nil {
			return fmt.Errorf("counting the objects of each namespace: %w", err)
		}
		_ = meta.EachListItem(list, func(obj runtime.Object) error {
			if m, err := meta.Accessor(obj); err == nil {
				weights[m.GetNamespace()]++
			}
			return nil
		})
		m, err := meta.ListAccessor(list)
		if err != nil {
			return fmt.Errorf("counting the objects of each namespace: %w", err)
		}
		if opts.Continue = m.GetContinue(); opts.Continue == "" {
			return nil
		}
	}
}

// continued returns the token with which a list can continue whose next page has expired, or "" if it
// cannot.
func continued(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || !apierrors.IsResourceExpired(err) {
		return ""
	}
	return status.Status().Continue
}
