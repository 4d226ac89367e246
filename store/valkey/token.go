package valkey

import (
	"context"
	"errors"
	"fmt"
	"math"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// LeaseToken returns a number for Options.Token, from the Lease of a leader election. Each holder gets a
// higher number than the one before it, even if the Lease was deleted in between, for example
// to free a lock. The number is 1,000,000 for each second from the year 2000 to the creation of the
// Lease, plus the number of times that the Lease has changed hands. client is a client for Leases, such
// as that of a clientset. name and holder are the name and the identity that client-go's leader election
// was given. Call LeaseToken when this process has become the leader:
//
//	token, err := valkey.LeaseToken(ctx, clientset.CoordinationV1().Leases(namespace), "operator", id)
//
// LeaseToken blocks for one GET of client. It returns an error if client is nil, if the GET fails, or if another
// process holds the Lease. holder must identify this process, not only its Pod, in which another process may have
// run before. The next number may be lower than an earlier one if spec.leaseTransitions is lowered, if etcd is
// restored from a backup, or if the clock of the API server was ahead when the Lease was created. Then Open returns
// an error that wraps ErrFenced.
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
	// A fake clientset sets no creation time, so that it is in the year 1.
	seconds := min(max(lease.CreationTimestamp.Unix()-year2000, 0), (maxToken-math.MaxInt32)/tokensPerSecond)
	return seconds*tokensPerSecond + int64(max(ptr.Deref(lease.Spec.LeaseTransitions, 0), 0)), nil
}

const (
	year2000        = 946_684_800 // in seconds since 1970
	tokensPerSecond = 1_000_000   // no Lease changes hands so often in a second
)
