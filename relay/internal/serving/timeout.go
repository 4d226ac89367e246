package serving

import (
	"net/http"
	"strconv"

	"k8s.io/apiserver/pkg/endpoints/request"
)

// withLongestWatch limits the timeout that a client can set for a watch. The server checks the
// rights of a client only when a watch begins, so a revoked right ends with the watch. A negative
// number of seconds can overflow to a long time.
func withLongestWatch(next http.Handler, seconds int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if info, ok := request.RequestInfoFrom(r.Context()); ok && info.Verb == "watch" {
			query := r.URL.Query()
			if asked, err := strconv.ParseInt(query.Get("timeoutSeconds"), 10, 64); err == nil && (asked < 0 || asked > int64(seconds)) {
				query.Set("timeoutSeconds", strconv.Itoa(seconds))
				r = r.Clone(r.Context())
				r.URL.RawQuery = query.Encode()
			}
		}
		next.ServeHTTP(w, r)
	})
}
