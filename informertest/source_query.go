package informertest

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// query holds the parsed and checked options of a LIST or WATCH.
type query struct {
	metainternalversion.ListOptions
	version uint64      // 0 if the request names none
	page    *pageToken  // nil for the first page
	fields  selectables // by each label in the field selector
}

// pageToken is the content of a Continue token: the next page begins after Key, with the state at
// Version.
type pageToken struct {
	Version uint64               `json:"version"`
	Key     types.NamespacedName `json:"key"`
}

// newQuery parses and checks options. If they are wrong, it returns the same error as the API
// server.
func (d *definition[T]) newQuery(options metav1.ListOptions, watchList bool) (query, error) {
	q := query{fields: selectables{}}
	err := metainternalversion.Convert_v1_ListOptions_To_internalversion_ListOptions(&options, &q.ListOptions, nil)
	if err != nil {
		return query{}, apierrors.NewBadRequest(err.Error())
	}
	if errs := validation.ValidateListOptions(&q.ListOptions, watchList); len(errs) > 0 {
		kind := schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}
		return query{}, apierrors.NewInvalid(kind, "", errs)
	}
	if q.FieldSelector != nil {
		for _, r := range q.FieldSelector.Requirements() {
			field, err := d.selectableField(r.Field)
			if err != nil {
				return query{}, apierrors.NewBadRequest(err.Error())
			}
			q.fields[r.Field] = field
		}
	}
	if err := q.parseVersion(); err != nil {
		return query{}, apierrors.NewBadRequest(err.Error())
	}
	return q, nil
}

func within(namespace string, opts metav1.ListOptions) metav1.ListOptions {
	if namespace != "" {
		only := "metadata.namespace=" + namespace
		if opts.FieldSelector != "" {
			only += "," + opts.FieldSelector
		}
		opts.FieldSelector = only
	}
	return opts
}

func (q *query) parseVersion() error {
	if rv := q.ResourceVersion; rv != "" {
		version, err := strconv.ParseUint(rv, 10, 64)
		if err != nil {
			return fmt.Errorf("invalid resourceVersion %q", rv)
		}
		q.version = version
	}
	if q.Continue == "" {
		return nil
	}
	if q.version != 0 {
		return fmt.Errorf("specifying resource version is not allowed when using continue")
	}
	q.page = &pageToken{}
	text, err := base64.RawURLEncoding.DecodeString(q.Continue)
	if err == nil {
		err = json.Unmarshal(text, q.page)
	}
	if err != nil {
		return fmt.Errorf("continue key is not valid: %w", err)
	}
	return nil
}

// String returns the token for ListOptions.Continue.
func (t pageToken) String() string {
	text, err := json.Marshal(t)
	if err != nil {
		panic(err) // never: it holds a number and two strings
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

func (q *query) selects(obj metav1.Object) bool {
	if q.LabelSelector != nil && !q.LabelSelector.Matches(labels.Set(obj.GetLabels())) {
		return false
	}
	if q.FieldSelector == nil {
		return true
	}
	values := fields.Set{"metadata.name": obj.GetName(), "metadata.namespace": obj.GetNamespace()}
	var content map[string]any
	for label, field := range q.fields {
		if _, known := values[label]; known {
			continue
		}
		if content == nil {
			content = contentOf(obj)
		}
		values[label] = field.value(content)
	}
	return q.FieldSelector.Matches(values)
}

// wantsInitial reports whether a watch begins with the existing objects.
func (q *query) wantsInitial() bool { return ptr.Deref(q.SendInitialEvents, q.version == 0) }

func (q *query) isWatchList() bool { return ptr.Deref(q.SendInitialEvents, false) }

// wantsExact reports whether a LIST must answer with exactly the requested version, neither older
// nor newer. As in the API server, a version with a limit implies that.
func (q *query) wantsExact() bool {
	match := q.ResourceVersionMatch
	return match == metav1.ResourceVersionMatchExact || match == "" && q.Limit > 0 && q.version != 0
}

// tooLarge returns the API server's error for a version that is still in the future.
func tooLarge(version, current uint64) error {
	err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", version, current), 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{
		Type:    metav1.CauseTypeResourceVersionTooLarge,
		Message: "Too large resource version",
	}}
	return err
}

// tooOld returns the API server's error for a version that has been compacted.
func tooOld(version, oldest uint64) *apierrors.StatusError {
	return apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", version, oldest))
}
