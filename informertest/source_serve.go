package informertest

import (
	"cmp"
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"

	"github.com/customcacheinformer/informer"
)

// Serve makes the source answer the requests of a fake clientset for one resource, such as "pods",
// in place of the fake's own tracker. A program that writes through the clientset then sees
// behaviour that an API server has and a fake lacks: objects have resourceVersions and UIDs, a
// write from an older state returns Conflict, and watches break, expire and miss nothing.
//
//	client := fake.NewClientset()
//	pods := informertest.NewSource[*corev1.Pod]()
//	pods.Serve(&client.Fake, "pods", &corev1.PodList{})
//
// list is an empty list of the type that the clientset's List returns. Get, List, Watch, Create,
// Update, UpdateStatus, Patch, Delete and DeleteCollection work; other verbs return
// MethodNotSupported. A source has no subresources, so UpdateStatus and a Patch of the status
// change the whole object. Delete deletes at once, even if the object has finalizers. Of the
// options of a write, only preconditions have an effect: a dry run writes.
//
// A Patch gets the same answer as from the API server, even if it changes the name, the UID or the
// resourceVersion. A Patch that changes nothing writes nothing. These types of patches work:
//
//   - JSON patches and merge patches, of any object.
//   - Strategic merge patches of the Go types of Kubernetes itself. For other types the error
//     is UnsupportedMediaType, which a server returns for custom resources.
//
// Server-side apply returns MethodNotSupported, and so does a strategic merge patch of an
// *unstructured.Unstructured of a built-in kind: both need the schema of the type. For apply, use
// a fake clientset without Serve.
//
// Faults.Down makes every request fail. Fail works for List and Watch only; to make a certain write
// fail, add a reactor to the fake after Serve. The reactor must not sleep: client-go's Fake calls
// reactors under a mutex, and time does not pass in a synctest bubble while a goroutine waits for a
// mutex. For the same reason HoldLists and ListDelay do not apply to the fake. The fake does not
// pass on the ctx of a call, so the end of that ctx does not end a watch: stop each watch.
//
// Serve does not block. It panics if fake or list is nil, or resource is empty.
func (s *Source[T]) Serve(fake *clienttesting.Fake, resource string, list runtime.Object) {
	if fake == nil || list == nil || resource == "" {
		panic("informertest: Serve: fake or list is nil, or resource is empty")
	}
	fake.PrependReactor("*", resource, func(action clienttesting.Action) (bool, runtime.Object, error) {
		obj, err := s.react(action, list)
		return true, obj, err
	})
	fake.PrependWatchReactor(resource, func(action clienttesting.Action) (bool, watch.Interface, error) {
		w, err := s.watch(context.Background(), action.GetNamespace(), action.(clienttesting.WatchActionImpl).ListOptions)
		return true, w, err
	})
}

// react answers every request except a watch.
func (s *Source[T]) react(action clienttesting.Action, empty runtime.Object) (runtime.Object, error) {
	key := types.NamespacedName{Namespace: action.GetNamespace()}
	if _, list := action.(clienttesting.ListActionImpl); !list {
		if err := s.absence(action.GetVerb()); err != nil {
			return nil, err
		}
	}
	if sub := action.GetSubresource(); sub == "" || sub == "status" {
		switch a := action.(type) {
		case clienttesting.GetActionImpl:
			key.Name = a.Name
			return answer(s.Get(key))
		case clienttesting.ListActionImpl:
			return s.listAs(empty, key.Namespace, a.ListOptions)
		case clienttesting.CreateActionImpl:
			if m, err := meta.Accessor(a.Object); err == nil && m.GetResourceVersion() != "" {
				return nil, apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
			}
			return write(s.Create, a.Object, key.Namespace)
		case clienttesting.UpdateActionImpl:
			return write(s.Update, a.Object, key.Namespace)
		case clienttesting.DeleteActionImpl:
			key.Name = a.Name
			return answer(s.deleteIf(key, a.DeleteOptions.Preconditions))
		case clienttesting.PatchActionImpl:
			return answer(s.patch(a))
		case clienttesting.DeleteCollectionActionImpl:
			return nil, s.deleteCollection(within(key.Namespace, a.ListOptions), a.DeleteOptions.Preconditions)
		}
	}
	return nil, s.notSupported(action.GetVerb())
}

// notSupported returns the error of a request that a source does not answer.
func (s *Source[T]) notSupported(verb string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return apierrors.NewMethodNotSupported(s.resource(), verb)
}

// methods are the HTTP methods of requests, as client-go spells them in errors.
var methods = map[string]string{"create": "Post", "update": "Put", "patch": "Patch", "delete": "Delete", "delete-collection": "Delete"}

// absence returns the error of a request with this verb while the server is down, and nil
// otherwise.
func (s *Source[T]) absence(verb string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.faults.absence(cmp.Or(methods[verb], "Get"))
}

// answer returns obj and err, but a nil object if err is not nil. obj would be a typed nil then.
func answer[T informer.Object](obj T, err error) (runtime.Object, error) {
	if err != nil {
		return nil, err
	}
	return obj, nil
}

// write calls a Create or an Update in a namespace. The object may have no namespace.
func write[T informer.Object](write func(T) (T, error), obj runtime.Object, namespace string) (runtime.Object, error) {
	typed, ok := obj.(T)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the object is a %T", obj))
	}
	switch own := typed.GetNamespace(); {
	case own == "" && namespace != "":
		typed = copyOf(typed)
		typed.SetNamespace(namespace)
	case own != namespace:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the namespace of the object is %q, that of the request %q", own, namespace))
	}
	return answer(write(typed))
}

// listAs answers a LIST of a namespace with a copy of empty, filled with the items.
func (s *Source[T]) listAs(empty runtime.Object, namespace string, opts metav1.ListOptions) (runtime.Object, error) {
	answer, err := s.answerList(namespace, s.record(verbList, within(namespace, opts)), nil)
	if err != nil {
		return nil, err
	}
	items, err := meta.ExtractList(answer)
	if err != nil {
		return nil, err
	}
	list := empty.DeepCopyObject()
	if err := meta.SetList(list, items); err != nil {
		return nil, err
	}
	about, err := meta.ListAccessor(list)
	if err != nil {
		return nil, err
	}
	about.SetResourceVersion(answer.ResourceVersion)
	about.SetContinue(answer.Continue)
	return list, nil
}

// deleteCollection deletes the objects that a LIST with opts returns, one after the other. It stops
// with an error at the first object for which the preconditions do not hold.
func (s *Source[T]) deleteCollection(opts metav1.ListOptions, only *metav1.Preconditions) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	page, err := s.page(opts)
	if err != nil {
		return err
	}
	for _, item := range page.Items {
		// An object may be gone if opts ask for an older version.
		if _, err := s.delete(keyOf(item.Object.(T)), only); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}
