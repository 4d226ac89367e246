package serving

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	jsonType     = "application/json"
	yamlType     = "application/yaml"
	protobufType = "application/vnd.kubernetes.protobuf"
	metadataList = ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	metadataOne  = ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	tableAs      = ";as=Table;g=meta.k8s.io;v=v1"

	podPath     = "/api/v1/namespaces/default/pods"
	widgetsPath = "/apis/example.com/v1/namespaces/default/widgets"
)

func TestEachResourceIsServedInTheEncodingsThatItHas(t *testing.T) {
	f := serve(t)
	f.pods.set(t, pod("a", "n1"))
	f.widgets.set(t, widget("a", "red", 1))
	for _, test := range []struct {
		path, accept string
		code         int
		contentType  string
		contains     string
	}{
		{podPath, "", 200, jsonType, `"kind":"PodList","apiVersion":"v1"`},
		{podPath + "/a", jsonType, 200, jsonType, `"kind":"Pod","apiVersion":"v1"`},
		{podPath, yamlType, 200, yamlType, "kind: PodList"},
		{podPath, protobufType, 200, protobufType, "PodList"},
		{podPath + "/a", protobufType, 200, protobufType, "n1"},
		{podPath, "text/html", 406, jsonType, "NotAcceptable"},
		{podPath, protobufType + metadataList, 200, protobufType, "PartialObjectMetadataList"},
		{podPath + "/a", jsonType + metadataOne, 200, jsonType, `"kind":"PartialObjectMetadata"`},
		{podPath, jsonType + tableAs, 200, jsonType, `"kind":"Table"`},

		{widgetsPath, "", 200, jsonType, `"kind":"WidgetList"`},
		{widgetsPath + "/a", jsonType, 200, jsonType, `"color":"red"`},
		{widgetsPath, yamlType, 200, yamlType, "kind: WidgetList"},
		{widgetsPath, protobufType + "," + jsonType, 200, jsonType, `"kind":"WidgetList"`},
		{widgetsPath, protobufType, 406, protobufType, "NotAcceptable"},
		{widgetsPath, protobufType + metadataList, 200, protobufType, "PartialObjectMetadataList"},
		{widgetsPath, protobufType + metadataList + "," + jsonType, 200, protobufType, "PartialObjectMetadataList"},
		{widgetsPath + "/a", jsonType + metadataOne, 200, jsonType, `"kind":"PartialObjectMetadata"`},
		{widgetsPath, jsonType + tableAs, 200, jsonType, `"kind":"Table"`},
		{widgetsPath + "/b", protobufType + "," + jsonType, 404, jsonType, `"reason":"NotFound"`},
	} {
		code, contentType, body := f.request(t, http.MethodGet, test.path, test.accept)
		if code != test.code || !strings.HasPrefix(contentType, test.contentType) || !strings.Contains(body, test.contains) {
			t.Errorf("%s as %q: got %d %s %s, want %d %s with %s",
				test.path, test.accept, code, contentType, body, test.code, test.contentType, test.contains)
		}
	}
}

func TestAProtobufWatchOfACustomResourceIsRefused(t *testing.T) {
	f := serve(t)
	if code, _, body := f.request(t, http.MethodGet, widgetsPath+"?watch=true&timeoutSeconds=1", protobufType); code != http.StatusNotAcceptable {
		t.Errorf("got %d %s", code, body)
	}
}

// kubectl asks for whole objects in a Table when it sorts. Widgets and Gadgets have the same Go type.
func TestATableHasTheNamesAndOnDemandTheObjects(t *testing.T) {
	f := serve(t)
	f.pods.set(t, pod("a", "n1"))
	f.widgets.set(t, widget("w", "red", 1))
	f.gadgets.set(t, gadget("g"))
	for path, want := range map[string]struct{ name, kind string }{
		podPath: {"a", "Pod"}, widgetsPath: {"w", "Widget"}, "/apis/example.com/v1/gadgets": {"g", "Gadget"},
	} {
		for include, kind := range map[string]string{"": "PartialObjectMetadata", "?includeObject=Object": want.kind} {
			_, _, body := f.request(t, http.MethodGet, path+include, jsonType+tableAs)
			var table metav1.Table
			if err := json.Unmarshal([]byte(body), &table); err != nil || len(table.Rows) != 1 || len(table.ColumnDefinitions) != 2 {
				t.Fatalf("%s: %v %s", path, err, body)
			}
			var object metav1.PartialObjectMetadata
			if err := json.Unmarshal(table.Rows[0].Object.Raw, &object); err != nil {
				t.Fatal(err)
			}
			if table.Rows[0].Cells[0] != want.name || object.Kind != kind || object.Name != want.name {
				t.Errorf("%s%s: got %s", path, include, body)
			}
		}
	}
}

func TestAnEmptyListHasItems(t *testing.T) {
	f := serve(t)
	for _, path := range []string{podPath, widgetsPath, "/apis/example.com/v1/gadgets"} {
		if body := f.get(t, path, http.StatusOK); !strings.Contains(body, `"items":[]`) {
			t.Error(body)
		}
	}
}

// Objects are shared with the storage and with other requests.
func TestServingDoesNotChangeTheObjectsOfTheStorage(t *testing.T) {
	f := serve(t)
	stored := f.pods.set(t, pod("a", "n1")).(*corev1.Pod)
	f.settle(t)
	f.get(t, podPath+"/a", http.StatusOK)
	f.get(t, podPath+"?watch=true&timeoutSeconds=1&resourceVersion=100", http.StatusOK)
	if stored.Kind != "" || stored.ResourceVersion != "101" {
		t.Errorf("the object became %+v", stored)
	}
}
