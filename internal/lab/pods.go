package lab

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// Pod is the type of the objects.
type Pod = *corev1.Pod

// podSize is the size of a Pod as protobuf, in bytes.
const podSize = 2048

// These are the numbers of Pods in a namespace and on a node.
const (
	perNamespace = 1000
	PerNode      = 100
)

// LastVersion is the resourceVersion of the list of a source without Relist.
const LastVersion = 1_000_000_000

// Source describes the Pods of a source.
type Source struct {
	Objects int
	Relist  bool // the source no longer has LastVersion, and some objects are deleted
}

// Key returns the key of the i-th Pod.
func Key(i int) string {
	return fmt.Sprintf("team-%05d/app-%04d-7c9d8b6f5d-x%04d", i/perNamespace, i%perNamespace/10, i%perNamespace)
}

// NodeOf returns the node of the i-th Pod.
func NodeOf(i int) string { return fmt.Sprintf("node-%05d", i/PerNode) }

// NewPod returns the i-th Pod, in the order of keys. It shares no memory with others.
func NewPod(i int) Pod {
	text := func(format string, args ...any) string { return strings.Clone(fmt.Sprintf(format, args...)) }
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       text("team-%05d", i/perNamespace),
			Name:            text("app-%04d-7c9d8b6f5d-x%04d", i%perNamespace/10, i%perNamespace),
			UID:             types.UID(text("%08x-0000-4000-8000-%012x", i, i)),
			ResourceVersion: strconv.Itoa(1000 + i),
			Labels:          map[string]string{"app": text("app-%04d", i%perNamespace/10), "pod-template-hash": text("7c9d8b6f5d")},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: text("apps/v1"), Kind: text("ReplicaSet"), Name: text("app-%04d-7c9d8b6f5d", i%perNamespace/10), UID: types.UID(text("%036d", i))}},
			Annotations:     map[string]string{},
		},
		Spec: corev1.PodSpec{
			NodeName:   text("node-%05d", i/PerNode),
			Containers: []corev1.Container{{Name: text("app"), Image: text("registry.example.com/team/app:v1.2.%d", i%100), Env: []corev1.EnvVar{{Name: text("A"), Value: text("%d", i)}}}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: text("10.%d.%d.%d", i>>16&255, i>>8&255, i&255)},
	}
	pad := text("%x", i)
	p.Annotations["example.com/state"] = strings.Repeat(pad, 1+max(0, podSize-p.Size()-24)/len(pad))
	return p
}

// oneIn is the share of the Pods that are deleted before a relist.
const oneIn = 1000

// Deleted returns how many Pods are missing with Relist.
func (s Source) Deleted() int { return (s.Objects + oneIn - 1) / oneIn }

// ListWatch returns a source that lists or streams the Pods, and accepts a watch from the version of
// the list. It keeps none of the Pods in memory.
func (s Source) ListWatch() *cache.ListWatch {
	version := strconv.Itoa(LastVersion)
	if s.Relist {
		version = strconv.Itoa(LastVersion + 1)
	}
	pod := func(i int) Pod {
		if s.Relist && i%oneIn == 0 {
			return nil
		}
		return NewPod(i)
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(_ context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			list, end := &corev1.PodList{}, s.Objects
			from, _ := strconv.Atoi(opts.Continue) // 0 for "", the first page
			if opts.Limit > 0 && from+int(opts.Limit) < end {
				end = from + int(opts.Limit)
				list.Continue = strconv.Itoa(end)
			}
			for i := from; i < end; i++ {
				if p := pod(i); p != nil {
					list.Items = append(list.Items, *p)
				}
			}
			list.ResourceVersion = version
			return list, nil
		},
		WatchFuncWithContext: func(_ context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			if opts.SendInitialEvents != nil && *opts.SendInitialEvents {
				return Stream(s.Objects, version, &corev1.Pod{}, pod), nil
			}
			if opts.ResourceVersion != version {
				return nil, apierrors.NewResourceExpired("too old")
			}
			return watch.NewProxyWatcher(make(chan watch.Event)), nil
		},
	}
}

// Stream returns a watch that streams n objects, without those for which object returns nil, and then
// the bookmark that ends the first state. It then stays open and sends nothing. It calls object only
// when the watch needs the next object, and keeps no object.
func Stream[T interface {
	comparable
	runtime.Object
	metav1.Object
}](n int, version string, bookmark T, object func(i int) T) watch.Interface {
	bookmark.SetResourceVersion(version)
	bookmark.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	events := make(chan watch.Event, 100) // as many as the decoder of a real watch has
	w := watch.NewProxyWatcher(events)
	go func() {
		var none T
		for i := range n + 1 {
			e := watch.Event{Type: watch.Bookmark, Object: bookmark}
			if i < n {
				obj := object(i)
				if obj == none {
					continue
				}
				e = watch.Event{Type: watch.Added, Object: obj}
			}
			select {
			case events <- e:
			case <-w.StopChan():
				return
			}
		}
	}()
	return w
}
