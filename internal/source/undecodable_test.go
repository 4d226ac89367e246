package source_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/testkit"
)

const (
	badObject = `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"namespace":"default","name":"bad","uid":"bad","resourceVersion":"1004"},"data":7}`
	badList   = `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"1004"},"items":[` +
		`{"metadata":{"namespace":"default","name":"good","uid":"good","resourceVersion":"1002"},"data":{"value":"1"}},` + badObject + `]}`
)

// One object that cannot be decoded makes every list and watch of a typed client fail. The error leads to the remedy.
func TestTheErrorOfAnObjectThatCannotBeDecodedLeadsToTheRemedy(t *testing.T) {
	for name, odd := range map[string]func(*http.Request) testkit.Answer{
		"in a list": toLists(testkit.Says(200, badList)),
		"in a watch": func(req *http.Request) testkit.Answer {
			if !testkit.IsWatch(req) {
				return nil
			}
			return testkit.Streams(`{"type":"ADDED","object":` + badObject + `}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWire()
				w.Odd(odd)
				o := observe(t, typedClient(w), anyOptions{})
				sleepBubble(time.Minute)
				if told, _ := o.take(); len(told) != 1 || !strings.Contains(told[0], "docs/operations.md") || !strings.Contains(told[0], "Transform") {
					t.Errorf("reported %q", told)
				}
			})
		})
	}
}

// The remedy: the dynamic client, and a Transform that decodes. Then only that object is missing, and its report has its name.
func TestATransformThatDecodesLeavesOutAnObjectThatCannotBeDecoded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire()
		w.Odd(func(req *http.Request) testkit.Answer {
			if testkit.IsWatch(req) {
				mended := strings.Replace(strings.Replace(badObject, "1004", "1005", 1), `"data":7`, `"data":{"value":"7"}`, 1)
				return func(req *http.Request) (*http.Response, error) {
					sleepUntil(req.Context(), time.Minute)
					return testkit.Streams(`{"type":"MODIFIED","object":` + mended + `}`)(req)
				}
			}
			return testkit.Says(200, badList)
		})
		o := observe(t, dynamicClient(w), anyOptions{
			Transform: func(obj informer.AnyObject) (informer.AnyObject, error) {
				decoded := &corev1.ConfigMap{}
				return decoded, runtime.DefaultUnstructuredConverter.FromUnstructured(obj.(*unstructured.Unstructured).Object, decoded)
			},
		})
		sleepBubble(30 * time.Second)
		if told, _ := o.take(); len(told) != 1 || !strings.Contains(told[0], "default/bad") || o.Health().Objects != 1 || o.Health().Ready() != nil {
			t.Errorf("%d objects, reported %q, %v", o.Health().Objects, told, o.Health().Ready())
		}
		sleepBubble(time.Minute)
		if obj, exists, err := o.Get(keyOf("bad")); err != nil || !exists || obj.(*corev1.ConfigMap).Data["value"] != "7" {
			t.Errorf("when it is mended: %v, %v, %v", obj, exists, err)
		}
	})
}
