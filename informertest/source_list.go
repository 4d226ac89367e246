package informertest

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// List calls ListWithContext with a ctx that never ends, as [cache.ListerWatcher] requires.
func (s *Source[T]) List(options metav1.ListOptions) (runtime.Object, error) {
	return s.ListWithContext(context.Background(), options)
}

// ListWithContext answers a LIST with a *metav1.List. Use
// [k8s.io/apimachinery/pkg/api/meta.ExtractList] to get its items. Limit and Continue are always
// honoured, and all pages have the state at the resourceVersion of the first page.
//
// It blocks only because of HoldLists and ListDelay of [Faults], and returns the error of ctx if
// ctx ends first. It also returns the errors of Faults.Down, Fail and FailIn. It returns 410
// Expired if the state that options ask for, or that of an earlier page, is no longer known, and
// Timeout with the cause ResourceVersionTooLarge if the resourceVersion is in the future. If the
// options are wrong, it returns Invalid or BadRequest.
func (s *Source[T]) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	request := s.record(verbList, options)
	list, err := s.answerList("", request, s.faults.lists.wait(ctx))
	if err != nil {
		return nil, err
	}
	return list, nil
}

// answerList answers a LIST of a namespace after its delay. If err is not nil, it answers with err.
func (s *Source[T]) answerList(namespace string, request *Request, err error) (list *metav1.List, _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		err = s.faults.failure(verbList, namespace)
	}
	if err == nil {
		list, err = s.page(request.Options)
	}
	if request.Err = err; err != nil {
		return nil, err
	}
	if s.faults.OmitListVersion {
		list.ResourceVersion = ""
	}
	for _, obj := range s.faults.ListItems {
		list.Items = append(list.Items, runtime.RawExtension{Object: obj})
	}
	return list, nil
}

func (s *Source[T]) page(options metav1.ListOptions) (*metav1.List, error) {
	options.Watch = false
	q, err := s.newQuery(options, true)
	if err != nil {
		return nil, err
	}
	version, err := s.listVersion(q)
	if err != nil {
		return nil, err
	}
	objects := s.objects
	if version != s.version {
		objects = s.history.rewind(objects, version)
	}
	list := &metav1.List{Items: []runtime.RawExtension{}}
	list.ResourceVersion = formatVersion(version)
	var last types.NamespacedName
	for _, key := range sortedKeys(objects) {
		if q.page != nil && compareKeys(key, q.page.Key) <= 0 || !q.selects(objects[key]) {
			continue
		}
		if q.Limit > 0 && int64(len(list.Items)) == q.Limit {
			list.Continue = pageToken{Version: version, Key: last}.String()
			break
		}
		list.Items = append(list.Items, runtime.RawExtension{Object: copyOf(objects[key])})
		last = key
	}
	return list, nil
}

func (s *Source[T]) listVersion(q query) (uint64, error) {
	version, exact := q.version, q.wantsExact()
	if q.page != nil {
		version, exact = q.page.Version, true
	}
	switch {
	case version > s.version:
		return 0, tooLarge(version, s.version)
	case !exact:
		return s.version, nil
	case version < s.history.since:
		return 0, tooOld(version, s.history.since)
	}
	return version, nil
}
