package valkey_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"github.com/customcacheinformer/informer/internal/sample"
	"github.com/customcacheinformer/informer/internal/testkit"
	"github.com/customcacheinformer/informer/store/valkey"
	"github.com/customcacheinformer/informer/store/valkey/internal/server"
)

// leaseToken returns the token of a Lease by the time at which it was made and the times that it has changed hands.
func leaseToken(t *testing.T, made time.Time, transitions *int32) int64 {
	t.Helper()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "operator", CreationTimestamp: metav1.NewTime(made)}}
	lease.Spec.HolderIdentity, lease.Spec.LeaseTransitions = ptr.To("me"), transitions
	leases := fake.NewClientset(lease).CoordinationV1().Leases("default")
	token, err := valkey.LeaseToken(t.Context(), leases, "operator", "me")
	must(t, err)
	for name, holder := range map[string]string{"another": "me", "operator": "you"} {
		if token, err := valkey.LeaseToken(t.Context(), leases, name, holder); err == nil {
			t.Errorf("the token of %s for %s is %d", name, holder, token)
		}
	}
	return token
}

// made is when a Lease was made, by the clock of the API server.
var made = time.Date(2026, 11, 25, 10, 0, 0, 0, time.UTC)

func TestTheTokenRisesWithEachHolderAndWithEachLease(t *testing.T) {
	leases := []struct {
		made        time.Time
		transitions *int32
	}{
		{time.Time{}, nil}, {time.Time{}, ptr.To[int32](1)}, {time.Time{}, ptr.To[int32](41)}, // an earlier version's tokens were as low
		{made, nil}, {made, ptr.To[int32](1)}, {made, ptr.To[int32](999_999)},
		{made.Add(time.Second), ptr.To[int32](0)}, {made.Add(time.Second), ptr.To[int32](7)},
		{made.AddDate(100, 0, 0), nil}, {made.AddDate(100, 0, 0), ptr.To[int32](math.MaxInt32)},
		{made.AddDate(7000, 0, 0), nil}, {made.AddDate(7000, 0, 0), ptr.To[int32](math.MaxInt32)},
	}
	last := int64(-1)
	for _, l := range leases {
		token := leaseToken(t, l.made, l.transitions)
		if token <= last {
			t.Errorf("the token of the Lease made at %v with %d transitions is %d, not higher than %d", l.made, ptr.Deref(l.transitions, 0), token, last)
		}
		last = token
	}
	if last > 1<<53-1 {
		t.Errorf("the highest token is %d, which no Store takes", last)
	}
	if token := leaseToken(t, made, ptr.To[int32](-5)); token != leaseToken(t, made, nil) {
		t.Errorf("with a negative number of transitions, the token is %d", token)
	}
}

// An earlier version's token was the number of transitions alone.
func TestTheLeaderOfALeaseThatWasMadeAgainGoesOn(t *testing.T) {
	c, opts := server.Start(t).Client(), valkey.Options{Identity: newIdentity()}
	s := open(t, c, sample.ConfigMap("", ""), opts)
	must(t, put(s, "a", "5"))
	tokens := []int64{41, leaseToken(t, made, ptr.To[int32](3)), leaseToken(t, made.Add(time.Minute), nil)}
	for _, opts.Token = range tokens {
		s = open(t, c, sample.ConfigMap("", ""), opts)
		if rv, err := s.Resume(t.Context()); rv != "5" || err != nil || len(stored(t, s)) != 1 {
			t.Errorf("with token %d, the store has %v at the bookmark %q, %v", opts.Token, stored(t, s), rv, err)
		}
	}
	for _, opts.Token = range append(tokens[:2], 0) {
		if _, err := valkey.Open(t.Context(), c, &corev1.ConfigMap{}, opts); !errors.Is(err, valkey.ErrFenced) {
			t.Errorf("token %d: %v", opts.Token, err)
		}
	}
	if err := add(s, sample.ConfigMap("a", "b")); err != nil {
		t.Errorf("a write of the leader: %v", err)
	}
}

func TestTheErrorOfALowerTokenHasTheCauseAndTheRemedies(t *testing.T) {
	for _, remedy := range []string{"delete the Lease", "delete the keys"} {
		srv := server.Start(t)
		opts := valkey.Options{Identity: newIdentity(), Token: 41, Writer: "the last leader"}
		open(t, srv.Client(), sample.ConfigMap("", ""), opts)
		opts.Token, opts.Writer = 0, "the first leader of the next Lease"
		_, err := valkey.Open(t.Context(), srv.Client(), &corev1.ConfigMap{}, opts)
		if !errors.Is(err, valkey.ErrFenced) {
			t.Fatal(err)
		}
		for _, want := range []string{"the writer is the last leader with token 41, and Options.Token is 0", "the Lease of the election was deleted", "delete the Lease"} {
			testkit.ErrorContains(t, err, want)
		}
		if remedy == "delete the Lease" {
			opts.Token = leaseToken(t, time.Now(), nil)
		} else {
			_, rest, _ := strings.Cut(err.Error(), "delete the keys ")
			keys, _, _ := strings.Cut(rest, " of the store")
			srv.Do("EVAL", "return redis.call('DEL', unpack(redis.call('KEYS', ARGV[1])))", "0", keys)
		}
		if err := add(open(t, srv.Client(), sample.ConfigMap("", ""), opts), sample.ConfigMap("a", "b")); err != nil {
			t.Errorf("after %q: %v", remedy, err)
		}
	}
}
