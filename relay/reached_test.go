package relay

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

func TestTheAPIServerIsAskedOnceWhetherItHasAVersion(t *testing.T) {
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.String())
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Query().Get("resourceVersion") {
		case "8":
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusGatewayTimeout)
			_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Timeout","code":504,` +
				`"details":{"causes":[{"reason":"ResourceVersionTooLarge"}],"retryAfterSeconds":1}}`))
		case "9": // a relay that is behind, too
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"TooManyRequests","code":429}`))
		case "10": // a relay whose API server does not have the version
			w.WriteHeader(http.StatusGone)
			_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}`))
		default:
			_, _ = w.Write([]byte(`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[]}`))
		}
	}))
	defer server.Close()
	for _, test := range []struct {
		resource schema.GroupVersionResource
		version  uint64
		has      bool
		fails    bool
		url      string
	}{
		{schema.GroupVersionResource{Version: "v1", Resource: "pods"}, 7, true, false, "/api/v1/pods?limit=1&resourceVersion=7&resourceVersionMatch=NotOlderThan"},
		{schema.GroupVersionResource{Group: "g", Version: "v1", Resource: "ws"}, 7, true, false, "/apis/g/v1/ws?limit=1&resourceVersion=7&resourceVersionMatch=NotOlderThan"},
		{schema.GroupVersionResource{Version: "v1", Resource: "pods"}, 8, false, false, ""},
		{schema.GroupVersionResource{Version: "v1", Resource: "pods"}, 9, false, true, ""},
		{schema.GroupVersionResource{Version: "v1", Resource: "pods"}, 10, false, false, ""},
	} {
		asked = nil
		r := Resource{GroupVersionResource: test.resource}
		reached, err := r.reached(&rest.Config{Host: server.URL})
		if err != nil {
			t.Fatal(err)
		}
		has, err := reached(t.Context(), test.version)
		if has != test.has || (err != nil) != test.fails || len(asked) != 1 || test.url != "" && asked[0] != test.url {
			t.Errorf("version %d: got %v, %v, asked %v", test.version, has, err, asked)
		}
	}
}
