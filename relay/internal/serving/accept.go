package serving

import (
	"mime"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// withoutProtobuf removes protobuf from the Accept header of requests for custom resources, which
// have no such encoding, unless the request asks for metadata only. A client that also accepts JSON
// then gets JSON. The request scope of the API server has a field for this, StandardSerializers, but
// only apiextensions-apiserver can set it.
func withoutProtobuf(next http.Handler, custom map[schema.GroupVersionResource]bool, serializer runtime.NegotiatedSerializer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, ok := request.RequestInfoFrom(r.Context())
		if !ok || !custom[schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}] {
			next.ServeHTTP(w, r)
			return
		}
		accepts := r.Header.Get("Accept")
		kept := removeProtobuf(accepts)
		switch kept {
		case accepts:
			next.ServeHTTP(w, r)
		case "":
			err := negotiation.NewNotAcceptableError([]string{runtime.ContentTypeJSON, runtime.ContentTypeYAML})
			responsewriters.ErrorNegotiated(err, serializer, schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}, w, r)
		default:
			r = r.Clone(r.Context())
			r.Header.Set("Accept", kept)
			next.ServeHTTP(w, r)
		}
	})
}

// removeProtobuf returns an Accept header without the clauses that ask for whole objects as
// protobuf.
func removeProtobuf(accepts string) string {
	var kept []string
	for clause := range strings.SplitSeq(accepts, ",") {
		mediaType, parameters, err := mime.ParseMediaType(clause)
		if err == nil && mediaType == runtime.ContentTypeProtobuf && parameters["as"] == "" {
			continue
		}
		kept = append(kept, clause)
	}
	return strings.Join(kept, ",")
}
