package serving

import apierrors "k8s.io/apimachinery/pkg/api/errors"

// errConsistentRead returns the error for a read of the newest state, if such reads are refused.
// The code is 400, which means that the client must change the request. Clients repeat a request
// unchanged after 429 and 5xx, list without a resourceVersion after 410, and take 403 and 405 for a
// matter of permissions and verbs.
func errConsistentRead() error {
	return apierrors.NewBadRequest(`this relay refuses reads without a resourceVersion, because it cannot know the newest state: ` +
		`set resourceVersion="0" to read the state that it has, or read from the API server`)
}
