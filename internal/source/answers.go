package source

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/customcacheinformer/informer/internal/object"
)

// answers checks that the answer to a LIST is a list of the resource. Clients decode other answers, such
// as the Status of a proxy, as an empty list, and then every object would seem to be deleted. Only an
// unstructured list shows its kind. Of other lists, only the objects and the version show what they are.
type answers struct {
	listed string // the version of the last complete list, or the version given to Run
	page   string // the version of the first page of the list that comes in

	known     atomic.Bool // the sink may have objects
	doubted   int         // pages in a row without objects, kind and version
	versioned atomic.Bool // the objects have versions
	kind      kind
}

// notice records that the sink has an object, or is about to get one.
func (a *answers) notice(obj any) {
	if a.known.Load() { // the usual case, kept cheap
		return
	}
	a.known.Store(true)
	a.kind.learn(obj)
	if m, err := object.Meta(obj); err == nil && compares(m.GetResourceVersion()) {
		a.versioned.Store(true)
	}
}

// checkVersion returns an error if a list of the resource, or a page of it, cannot have this version. A page must have the
// version of the first page. After a list with a version, a list without one is refused, and after one that compares, one
// that does not. An empty list without a version is refused if the sink may have objects, until contradictions of them came
// in a row. proven is true if the objects or the kind of the list show that it is a list of the resource.
func (a *answers) checkVersion(version string, first, proven bool) error {
	switch {
	case !first && version != a.page:
		return fmt.Errorf("the answer is not the next page of the list: it has resourceVersion %q, and the first page has %q", version, a.page)
	case compares(version), !first && !isAnyVersion(version):
	case !isAnyVersion(a.listed) && (isAnyVersion(version) || compares(a.listed)):
		return fmt.Errorf("the answer may not be a list of the resource: it has resourceVersion %q, which does not compare with %q of the last one", version, a.listed)
	case !proven && (!first || a.known.Load() && (isAnyVersion(a.listed) || a.versioned.Load())):
		if a.doubted++; a.doubted < contradictions {
			return fmt.Errorf("the answer may not be a list of the resource: it has resourceVersion %q and no objects", version)
		}
	}
	a.page, a.doubted = version, 0
	return nil
}

// checkKind returns an error if list is unstructured and not a list, or of another kind than earlier
// objects. proven is true if the objects or the kind of the list show that it is a list of the resource.
func (a *answers) checkKind(list runtime.Object) (proven bool, err error) {
	l, ok := list.(*unstructured.UnstructuredList)
	full := meta.LenList(list) > 0
	if !ok || l.GetKind() == "" { // of a typed client, or made by a program
		return full, nil
	}
	// A list has at most apiVersion, kind and metadata besides its items, and no name.
	name, _, _ := unstructured.NestedString(l.Object, "metadata", "name")
	if !full && !strings.HasSuffix(l.GetKind(), "List") && (len(l.Object) > 3 || l.Object["metadata"] == nil || name != "") {
		return false, fmt.Errorf("the answer is not a list, but of kind %s", l.GetKind())
	}
	if err := a.kind.check(l); err != nil {
		return false, err
	}
	return full || !a.versioned.Load(), nil // if objects have versions, so does their list
}

// contradictions is how many doubtful lists in a row are needed until one is believed. Otherwise, after
// one wrong answer at the start, all right answers would be refused forever. A list is doubtful if it is
// empty and has no version, or if it is of another kind.
const contradictions = 20

// kind is the kind of the unstructured objects of a source. Its methods may be called from any goroutine.
type kind struct {
	mu           sync.Mutex // protects the rest
	object, list string     // of the objects, and of the last list with some; empty if not known
	other        int        // lists of another kind since the last of the kind
}

// learn records the kind of the first object. It returns false if obj has another kind than the first.
func (k *kind) learn(obj any) bool {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok || u.GetKind() == "" {
		return true
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.object = cmp.Or(k.object, u.GetKind())
	return k.object == u.GetKind()
}

// forget makes the kind unknown, before a source that may deliver another one.
func (k *kind) forget() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.object, k.list, k.other = "", "", 0
}

// check returns an error if no item of l has the kind of the objects, and l is neither a List nor of the kind of the last
// list or of a list of the objects. It believes the last of contradictions such lists in a row.
func (k *kind) check(l *unstructured.UnstructuredList) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	fits := k.object == "" || slices.Contains([]string{"List", k.list, k.object + "List"}, l.GetKind()) ||
		slices.ContainsFunc(l.Items, func(u unstructured.Unstructured) bool { return u.GetKind() == "" || u.GetKind() == k.object })
	if k.other++; !fits && k.other < contradictions {
		return fmt.Errorf("the answer is of kind %s, and the objects before it were of kind %s", l.GetKind(), k.object)
	}
	if k.other = 0; !fits {
		k.object = ""
	}
	if !fits || len(l.Items) > 0 {
		k.list = l.GetKind()
	}
	return nil
}
