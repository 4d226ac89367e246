package serving

import (
	"net/http"
	"strconv"

	"k8s.io/apiserver/pkg/endpoints/request"
)

// withLongestWatch limits the time for which a client can ask a watch to last. A client's right is
// checked at the beginning of a watch alone, so a right that is revoked ends with the watch.
func withLongestWatch(next http.Handler, seconds int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if info, ok := request.RequestInfoFrom(r.Context()); ok && info.Verb == "watch" {
			query := r.URL.Query()
			if asked, err := strconv.ParseInt(query.Get("timeoutSeconds"), 10, 64); err == nil && asked > int64(seconds) {
				query.Set("timeoutSeconds", strconv.Itoa(seconds))
				r = r.Clone(r.Context())
				r.URL.RawQuery = query.Encode()
			}
		}
		next.ServeHTTP(w, r)
	})
}
