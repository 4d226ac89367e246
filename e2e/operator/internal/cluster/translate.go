package cluster

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

// translate turns a request in protobuf into one in JSON. Clients of Kubernetes' own kinds
// prefer protobuf, but a stand-in is served as JSON only. The answer is then JSON too, which
// these clients also understand.
func translate(r *http.Request) error {
	if strings.Contains(r.Header.Get("Accept"), runtime.ContentTypeProtobuf) {
		r.Header.Set("Accept", runtime.ContentTypeJSON)
	}
	if r.Header.Get("Content-Type") != runtime.ContentTypeProtobuf {
		return nil
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	obj, kind, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		return err
	}
	obj.GetObjectKind().SetGroupVersionKind(*kind)
	if body, err = json.Marshal(obj); err != nil {
		return err
	}
	r.Header.Set("Content-Type", runtime.ContentTypeJSON)
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return nil
}
