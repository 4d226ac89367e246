package source_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

const password = "hunter2"

func secret() *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}, StringData: map[string]string{"password": password}}
}

// looseSecret returns a Secret as an *unstructured.Unstructured. It has the methods of a list.
func looseSecret() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"kind": "Secret", "stringData": map[string]any{"password": password}}}
}

// oddList is a list whose items are not API objects.
type oddList[Item any] struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []Item
}

func (l *oddList[Item]) DeepCopyObject() runtime.Object { return l }

// TestNoReportContainsAnObject has answers that client-go's errors would quote.
func TestNoReportContainsAnObject(t *testing.T) {
	const noList = " is not a list: its items are not API objects"
	for name, c := range map[string]struct {
		script []answer
		says   string
	}{
		"an object instead of a list":        {[]answer{{list: secret()}}, "*v1.Secret is not a list: "},
		"a loose object instead of a list":   {[]answer{{list: looseSecret()}}, "*unstructured.Unstructured is not a list: it has no items"},
		"a list of strings":                  {[]answer{{list: &oddList[string]{Items: []string{password}}}}, noList},
		"a list of data":                     {[]answer{{list: &oddList[map[string]string]{Items: []map[string]string{secret().StringData}}}}, noList},
		"a list of anything":                 {[]answer{{list: &oddList[any]{Items: []any{password}}}}, noList},
		"a page of data":                     {[]answer{{list: &oddList[string]{ListMeta: metav1.ListMeta{Continue: "2"}, Items: []string{password}}}}, noList},
		"an object instead of a status":      {[]answer{lists("5"), sends(watch.Event{Type: watch.Error, Object: secret()})}, "the watch reports an error with a *v1.Secret"},
		"an object instead of an event":      {[]answer{lists("5"), sends(watch.Event{Type: "ODD", Object: secret()})}, "unknown type of watch event"},
		"a loose object instead of a status": {[]answer{lists("5"), sends(watch.Event{Type: watch.Error, Object: looseSecret()})}, "the watch reports an error with a *unstructured.Unstructured"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &play{t: t, tellsAll: true, script: c.script}
				p.run(aloneOptions(), "")
				time.Sleep(500 * time.Millisecond)
				told := strings.Join(p.reports(), "\n")
				if strings.Contains(told, password) || !strings.Contains(told, c.says) {
					t.Errorf("reported, without %q: %s", c.says, told)
				}
				if f := p.source.Status().Failure; f != nil && strings.Contains(fmt.Sprint(f.Err), password) {
					t.Errorf("the status has %v", f.Err)
				}
			})
		})
	}
}
