package serving

import apierrors "k8s.io/apimachinery/pkg/api/errors"

// errConsistentRead answers a read that asks for the newest state, if such reads are refused. It is
// 400, the code of a request that is the client's to change. Clients repeat 429 and 5xx without a
// change, take 410 as a reason to list without a resourceVersion, and take 403 and 405 for a matter
// of permissions and verbs.
func errConsistentRead() error {
	return apierrors.NewBadRequest(`this relay refuses reads without a resourceVersion, because it cannot know the newest state: ` +
		`set resourceVersion="0" to read the state that it has, or read from the API server`)
}
