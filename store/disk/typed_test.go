package disk_test

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/store/disk"
)

// ported is the part of two versions of a type that stays the same. It has the methods that a
// type declared by a function cannot have.
type ported struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Names             []string
	Numbers           []int32
}

func (*ported) DeepCopyObject() runtime.Object { panic("not called") }

func TestAFileOfATypeThatHasChangedIsSetAside(t *testing.T) {
	before := func() runtime.Object {
		type service struct {
			ported
			Ports []string
		}
		return &service{ported{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, []string{"http"}}
	}()
	after := func() runtime.Object {
		type service struct {
			ported
			Ports []int32 // of a type that the description of the struct has already had
		}
		return &service{}
	}()
	path := newPath(t)
	s := open(t, path, before, disk.Options{})
	must(t, errors.Join(add(s, before.(informer.AnyObject)), s.Close()))
	wantAside(t, path, after, disk.Options{}, "fields of the objects")
}

func TestAnInformerDoesNotTakeAStoreOfAnotherType(t *testing.T) {
	store := open(t, newPath(t), &corev1.Pod{}, disk.Options{})
	_, err := informer.NewFrom(informertest.NewSource[*corev1.Pod](), informer.Options[*corev1.Pod]{Durable: store})
	if err != nil {
		t.Errorf("of Pods: %v", err)
	}
	_, err = informer.NewFrom(informertest.NewSource[*corev1.ConfigMap](), informer.Options[*corev1.ConfigMap]{Durable: store})
	if err == nil || !strings.Contains(err.Error(), "Options.Durable is a store of *v1.Pod") {
		t.Errorf("of ConfigMaps: %v", err)
	}
}
