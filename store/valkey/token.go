package valkey

import (
	"context"
	"errors"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// LeaseToken returns the number of times that a Lease has changed hands, for Options.Token. Each holder
// has a higher number than the one before it. client is a client for Leases, such as that of a
// clientset, and name and holder are the name and the identity that client-go's leader election was
// given. Call it when this process has become the leader:
//
//	token, err := valkey.LeaseToken(ctx, clientset.CoordinationV1().Leases(namespace), "operator", id)
//
// LeaseToken blocks for one GET of client. It returns an error if the GET fails, and if somebody else
// holds the Lease. The identity must be that of this process alone, not that of its Pod, which may
// have had another process before. If the Lease is deleted, its number begins at 0 again, and Open
// returns ErrFenced until the number is as high as before: delete the keys of the store, too.
func LeaseToken(ctx context.Context, client interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*coordinationv1.Lease, error)
}, name, holder string) (int64, error) {
	if client == nil {
		return 0, errors.New("valkey: LeaseToken: the client is nil")
	}
	lease, err := client.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return 0, fmt.Errorf("valkey: LeaseToken: %w", err)
	}
	if has := ptr.Deref(lease.Spec.HolderIdentity, ""); has != holder || holder == "" {
		return 0, fmt.Errorf("valkey: LeaseToken: the holder of Lease %s is %q, not %q", name, has, holder)
	}
	return int64(ptr.Deref(lease.Spec.LeaseTransitions, 0)), nil
}
