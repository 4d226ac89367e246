// Package bulk has what the programs share that measure stores of many objects.
package bulk

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

// How many Pods share a namespace or a node.
const (
	perNamespace = 1000
	PerNode      = 100
)

// LastVersion is the version of a first list.
const LastVersion = 1_000_000_000

// Source says which Pods a source has.
type Source struct {
	Objects, Size int
	Relist        bool // the source no longer has LastVersion, and some objects are deleted
}

// Key returns the key of the i-th Pod.
func Key(i int) string {
	return fmt.Sprintf("team-%05d/app-%04d-7c9d8b6f5d-x%04d", i/perNamespace, i%perNamespace/10, i%perNamespace)
}

// NodeOf returns the node of the i-th Pod.
func NodeOf(i int) string { return fmt.Sprintf("node-%05d", i/PerNode) }

// New returns the i-th Pod, in the order of keys. It shares no memory with others.
func New(i, size int) Pod {
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
	p.Annotations["example.com/state"] = strings.Repeat(pad, 1+max(0, size-p.Size()-24)/len(pad))
	return p
}

// oneIn is the share of the Pods that are deleted before a relist.
const oneIn = 1000

// Deleted returns how many Pods are deleted before a relist.
func (s Source) Deleted() int { return (s.Objects + oneIn - 1) / oneIn }

// ListWatch returns a source that lists or streams the Pods, and then accepts a watch from its
// version. It keeps none of the Pods in memory.
func (s Source) ListWatch() *cache.ListWatch {
	n, size, version := s.Objects, s.Size, LastVersion
	if s.Relist {
		version++
	}
	exists := func(i int) bool { return !s.Relist || i%oneIn > 0 }
	return &cache.ListWatch{
		ListWithContextFunc: func(_ context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			list, end := &corev1.PodList{}, n
			from, _ := strconv.Atoi(opts.Continue) // 0 for "", the first page
			if opts.Limit > 0 && from+int(opts.Limit) < n {
				end = from + int(opts.Limit)
				list.Continue = strconv.Itoa(end)
			}
			for i := from; i < end; i++ {
				if exists(i) {
					list.Items = append(list.Items, *New(i, size))
				}
			}
			list.ResourceVersion = strconv.Itoa(version)
			return list, nil
		},
		WatchFuncWithContext: func(_ context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			events := make(chan watch.Event, 100)
			w := watch.NewProxyWatcher(events)
			switch {
			case opts.SendInitialEvents != nil && *opts.SendInitialEvents:
				go s.stream(events, w.StopChan(), exists, version)
			case opts.ResourceVersion != strconv.Itoa(version):
				return nil, apierrors.NewResourceExpired("too old")
			}
			return w, nil // no further event ever comes
		},
	}
}

// stream sends the Pods that exist, and then the bookmark that marks their end.
func (s Source) stream(events chan<- watch.Event, stopped <-chan struct{}, exists func(i int) bool, version int) {
	send := func(e watch.Event) bool {
		select {
		case events <- e:
			return true
		case <-stopped:
			return false
		}
	}
	for i := range s.Objects {
		if exists(i) && !send(watch.Event{Type: watch.Added, Object: New(i, s.Size)}) {
			return
		}
	}
	end := &corev1.Pod{}
	end.ResourceVersion = strconv.Itoa(version)
	end.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	send(watch.Event{Type: watch.Bookmark, Object: end})
}
