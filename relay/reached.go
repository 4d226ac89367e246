package relay

import (
	"context"
	"fmt"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// reached returns a function that asks the API server whether it has a version of the resource. The
// function reads one object, and tries once: client-go would repeat the request after the answer
// that the version is too large.
func (r *Resource) reached(upstream *rest.Config) (func(context.Context, uint64) (bool, error), error) {
	config := rest.CopyConfig(upstream)
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.name(), err)
	}
	path := []string{"/apis", r.Group, r.Version, r.Resource}
	if r.Group == "" {
		path = []string{"/api", r.Version, r.Resource}
	}
	return func(ctx context.Context, version uint64) (bool, error) {
		err := client.Get().AbsPath(path...).MaxRetries(0).
			Param("resourceVersion", strconv.FormatUint(version, 10)).
			Param("resourceVersionMatch", string(metav1.ResourceVersionMatchNotOlderThan)).
			Param("limit", "1").
			Do(ctx).Error()
		// 410 is the answer of another relay, whose API server does not have the version.
		if apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) || apierrors.IsResourceExpired(err) {
			return false, nil
		}
		return err == nil, err
	}, nil
}
