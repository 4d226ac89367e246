package framing

import (
	"encoding/binary"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// TestIdleWatchIsSmall sends a large event, after which a watch has nothing to do.
func TestIdleWatchIsSmall(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: strings.Repeat("x", 1<<20)}}
	message := func(kind string) string {
		raw, _ := pod.Marshal()
		envelope, _ := (&runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: "Pod"}, Raw: raw}).Marshal()
		e, _ := (&metav1.WatchEvent{Type: kind, Object: runtime.RawExtension{Raw: append([]byte("k8s\x00"), envelope...)}}).Marshal()
		return string(binary.BigEndian.AppendUint32(nil, uint32(len(e)))) + string(e)
	}
	text := func(kind string) string {
		return `{"type":"` + kind + `","object":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"` + pod.Name + `"}}}`
	}
	for _, parts := range [][]string{
		{text("ADDED")}, {text("ADDED") + "\n"}, {text("ADDED"), "\n"}, {text("BOOKMARK") + "\n"},
		{`"` + pod.Name}, {message("ADDED")}, {message("BOOKMARK")},
	} {
		synctest.Test(t, func(t *testing.T) {
			taps, _ := TypeOf(reflect.TypeFor[*corev1.PodList]())
			tap := &Tap{Type: taps, Events: make(chan watch.Event, 1)}
			r, w := io.Pipe()
			req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/pods?watch=true", http.NoBody)
			header := http.Header{"Content-Type": {mediaJSON}}
			if parts[0][0] == 0 {
				header.Set("Content-Type", mediaProtobuf)
			}
			b, why := tap.body(req, &http.Response{StatusCode: http.StatusOK, Header: header, Body: r})
			if b == nil {
				t.Fatal(why)
			}
			done := make(chan int64)
			go func() {
				n, _ := io.Copy(io.Discard, b)
				done <- n
			}()
			for _, part := range parts {
				_, _ = io.WriteString(w, part)
			}
			synctest.Wait()
			if n := len(b.in.buf) + cap(b.out); n > watchBuffer || len(tap.Events) != 1 {
				t.Errorf("%.30q: a watch keeps %d bytes, after %d events", parts[0], n, len(tap.Events))
			}
			_ = b.Close()
			if n := <-done; strings.Contains(parts[0], "ADDED") != (n == 0) {
				t.Errorf("%.30q: %d bytes passed", parts[0], n)
			}
		})
	}
}

func TestGroupVersion(t *testing.T) {
	for path, want := range map[string]string{
		"/api/v1/pods":                                     "v1",
		"/api/v1/pods/":                                    "v1",
		"/api/v1/namespaces":                               "v1",
		"/api/v1/namespaces/x/pods":                        "v1",
		"/api/v1/namespaces/apis/pods":                     "v1",
		"/apis/apps/v1/deployments":                        "apps/v1",
		"/apis/apps/v1/namespaces/x/deployments":           "apps/v1",
		"/apis/namespaces/v1/things":                       "namespaces/v1",
		"/apis/api/v1/things":                              "api/v1",
		"/apis/example.com/v1beta1/namespaces":             "example.com/v1beta1",
		"/apis/example.com/v1beta1/namespaces/api/things":  "example.com/v1beta1",
		"/k8s/clusters/c-1/api/v1/namespaces/x/pods":       "v1",
		"/k8s/api/apis/example.com/v1/namespaces/x/things": "example.com/v1",
		"/":                              "",
		"":                               "",
		"/version":                       "",
		"/api/v1":                        "",
		"/apis/apps/v1":                  "",
		"/metrics/v1/pods":               "",
		"/api/v1/namespaces/x":           "",
		"/api/v1/pods/x/log":             "",
		"/apis/apps/v1/namespaces/x/d/n": "",
	} {
		if got, ok := groupVersion(path); got != want || ok != (want != "") {
			t.Errorf("groupVersion(%q) returned %q, %t, want %q", path, got, ok, want)
		}
	}
}
