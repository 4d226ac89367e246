// Package leases reads and writes the content of the Leases of a set. It makes no requests and holds no
// state. A part of a Lease that cannot be read counts as missing, because a user may have changed it by
// hand.
package leases

import (
	"encoding/json"
	"maps"
	"math"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/utils/ptr"
)

// These are the label and the annotations of the Leases. The first group may be on any Lease. The Lease of
// a session also has those from workers to handled, and the Lease of a bucket those from seen to died.
const (
	setLabel          = prefix + "set"
	bucketsAnnotation = prefix + "buckets"
	byAnnotation      = prefix + "by"     // byNamespace, or missing
	rangesAnnotation  = prefix + "ranges" // of the Lease that has the ranges of namespaces
	cutAnnotation     = prefix + "cut"    // the key of the holder's ranges
	leaseAnnotation   = prefix + "lease"  // the UID of the Lease, missing when it is created

	workersAnnotation = prefix + "workers" // the keys of each worker, by name

	holdsAnnotation = prefix + "holds" // the buckets that the session has
	idleAnnotation  = prefix + "idle"  // the session takes no buckets, because it has just begun, or ends
	lateAnnotation  = prefix + "late"  // the caches of the session are behind, or perhaps so
	endedAnnotation = prefix + "ended" // another replica has ended the session

	seenAnnotation    = prefix + "seen"    // the versions that the holder had seen, by worker
	claimsAnnotation  = prefix + "handled" // claims
	deletesAnnotation = prefix + "deletes" // keys of deletes that the holder must handle, by worker
	diedAnnotation    = prefix + "died"    // the last holder that has worked had no time to write what it had seen

	prefix = "shards.customcacheinformer.github.io/"
)

// Selector returns the label selector of the Leases of a set.
func Selector(set string) string { return setLabel + "=" + set }

// SessionName returns the name of the Lease of a session. It ends with the random part of the session's
// id.
func SessionName(set, id string) string { return set + "-session-" + id[strings.LastIndex(id, "_")+1:] }

// BucketName returns the name of the Lease of a bucket.
func BucketName(set string, bucket int) string { return set + "-bucket-" + strconv.Itoa(bucket) }

// BucketOf returns the bucket of a Lease, and false if it is not the Lease of a bucket.
func BucketOf(set string, lease *coordinationv1.Lease) (bucket int, ok bool) {
	n, ok := strings.CutPrefix(lease.Name, set+"-bucket-")
	if !ok {
		return 0, false
	}
	bucket, err := strconv.Atoi(n)
	return bucket, err == nil && bucket >= 0 && lease.Name == BucketName(set, bucket)
}

// RangesName returns the name of the Lease that has the ranges of namespaces.
func RangesName(set string) string { return set + "-ranges" }

// Ranges returns the text of the ranges of namespaces in their Lease, or "" if it has none.
func Ranges(lease *coordinationv1.Lease) string { return lease.Annotations[rangesAnnotation] }

// SetRanges writes the text of the ranges of namespaces into their Lease.
func SetRanges(lease *coordinationv1.Lease, text string) { annotate(lease, rangesAnnotation, text) }

// Holder returns spec.holderIdentity, or "" if there is none or lease is nil.
func Holder(lease *coordinationv1.Lease) string {
	if lease == nil || lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

// Token returns spec.leaseTransitions, or 0 if there is none or lease is nil.
func Token(lease *coordinationv1.Lease) int32 {
	if lease == nil || lease.Spec.LeaseTransitions == nil {
		return 0
	}
	return *lease.Spec.LeaseTransitions
}

// FirstToken returns the token of a bucket whose Lease is new. It is the number of seconds since the year
// 2000. So tokens still rise after the Leases were deleted, as long as a bucket does not change
// hands once a second for years.
func FirstToken(now time.Time) int32 {
	return int32(max(1, min(now.Unix()-946684800, math.MaxInt32/2)))
}

// Own writes the token of a bucket and the current time into its Lease.
func Own(lease *coordinationv1.Lease, token int32) {
	lease.Spec.LeaseTransitions = &token
	lease.Spec.AcquireTime = ptr.To(metav1.NewMicroTime(time.Now()))
}

// IsNewer reports whether a is a later state of a Lease than b. It also returns true if the UIDs differ or
// the versions cannot be compared.
func IsNewer(a, b *coordinationv1.Lease) bool {
	if a.UID != b.UID {
		return true
	}
	order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
	return err != nil || order > 0
}

// IsOther reports whether a and b are different states of a Lease, or different Leases.
func IsOther(a, b *coordinationv1.Lease) bool {
	return a.UID != b.UID || a.ResourceVersion != b.ResourceVersion
}

func annotate(lease *coordinationv1.Lease, key, value string) {
	lease.Annotations = maps.Clone(lease.Annotations)
	if lease.Annotations == nil {
		lease.Annotations = map[string]string{}
	}
	if value == "" {
		delete(lease.Annotations, key)
		return
	}
	lease.Annotations[key] = value
}

// flagText returns the value of an annotation that is true or missing.
func flagText(on bool) string {
	if on {
		return "true"
	}
	return ""
}

func format(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // the types of this package have nothing that JSON lacks
	}
	return string(text)
}

// parse reads text that format has returned. It returns the zero T if it cannot read the text.
func parse[T any](text string) T {
	var v, none T
	if json.Unmarshal([]byte(text), &v) != nil {
		return none
	}
	return v
}
