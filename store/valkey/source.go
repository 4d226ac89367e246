package valkey

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/valkey-io/valkey-go"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer/store"
	"github.com/customcacheinformer/informer/store/codec"
)

var _ cache.ListerWatcherWithContext = (*Source)(nil)

// Source lists and watches the objects that a [Store] of another process keeps on the server, for an
// informer without a connection to the API server:
//
//	source, err := valkey.NewSource(client, &corev1.Pod{}, identity)
//	…
//	pods, err := informer.NewFrom(source, informer.Options[*corev1.Pod]{})
//
// [NewSource] makes one. Each informer needs its own Source. It must not be copied. After a list, the
// informer gets every change, in the order in which the API server made them, with the API server's
// versions. The version of a delete is the last one that the store had before the delete, because its
// own version is not known. A delete may come twice.
//
// The informer keeps what it has while the writer lists, and while the server does not have all of the
// store: a list returns the error 503, a new watch returns 429, and an open watch delivers nothing. The
// same holds while the server has an older state than the informer, because a server that was behind
// has taken over. When the server has caught up, the informer lists. A watch ends with the error 410
// after the writer has listed again, or if the server no longer keeps the changes that the informer has
// missed. Then the informer lists again, and finds what was deleted.
type Source struct {
	client valkey.Client
	place  place
	codec  codec.Codec

	mu      sync.Mutex
	epoch   string // of the last list
	log     string // of the last list
	session string // the session that wrote what the informer has got
	reached uint64 // the highest version in that epoch that the informer has got
}

// NewSource returns a Source of the store that has this identity. example is an object of the type that
// the store keeps. NewSource makes no request and does not block. The client must send reads to the
// primary, as it does by default. It belongs to the caller, who closes it when no watch is open any
// more. NewSource returns an error if client is nil, or if no store can have that example or identity.
func NewSource(client valkey.Client, example runtime.Object, identity store.Identity) (*Source, error) {
	s, err := newSource(client, example, identity)
	if err != nil {
		return nil, fmt.Errorf("valkey: source: %w", err)
	}
	return s, nil
}

func newSource(client valkey.Client, example runtime.Object, identity store.Identity) (*Source, error) {
	if client == nil {
		return nil, errors.New("the client is nil")
	}
	of, err := codec.New(example)
	if err != nil {
		return nil, err
	}
	p, err := newPlace(of, identity)
	if err != nil {
		return nil, err
	}
	return &Source{client: client, place: p, codec: of}, nil
}

// IsWatchListSemanticsUnSupported returns true, so that an informer lists before it watches.
func (s *Source) IsWatchListSemanticsUnSupported() bool { return true }

// List is like ListWithContext, but cannot be cancelled.
func (s *Source) List(opts metav1.ListOptions) (runtime.Object, error) {
	return s.ListWithContext(context.Background(), opts)
}

// Watch is like WatchWithContext, without a ctx. Stop ends the watch.
func (s *Source) Watch(opts metav1.ListOptions) (watch.Interface, error) {
	return s.WatchWithContext(context.Background(), opts)
}

// ListWithContext returns a *metav1.List of all objects at one version. It blocks while it reads them
// page by page, and then the changes since the first page. The list is as new as the store: the version
// in opts, and a limit other than 1, have no effect. With a limit of 1, ListWithContext returns no
// objects, only the version of the store, and a continue token for the whole list. If opts also has a
// version, it returns the error 410 if a watch could not begin at that version. It returns the error
// 400 if opts has a selector, and 410 if the store no longer has the version of a continue token. If the
// store cannot be listed now, it returns the error 503 with the reason, or the error of ctx if ctx was
// cancelled. Each request gives up after 10 seconds.
func (s *Source) ListWithContext(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	switch {
	case opts.LabelSelector != "" || opts.FieldSelector != "":
		return nil, apierrors.NewBadRequest("valkey: a Source has no selectors: it lists all objects of the store")
	case opts.Continue == "" && opts.Limit == 1:
		return s.probe(ctx, opts.ResourceVersion)
	}
	var err error
	for range maxAttempts {
		var l *listing
		if l, err = s.list(ctx); err == nil {
			if opts.Continue != "" && opts.Continue != versionText(l.version) {
				return nil, expired("the store has changed since the first page: a Source lists all objects at once")
			}
			return l.result(s), nil
		}
		if again := (changedError{}); !errors.As(err, &again) {
			break
		}
	}
	return nil, unavailable(err)
}

// maxAttempts is how often a list is tried if each attempt returns a changedError.
const maxAttempts = 3

// changedError means that the pages of a list cannot be brought to one state. The list must begin again.
type changedError struct{ reason string }

func (e changedError) Error() string { return "the list has to begin again: " + e.reason }

// unavailable returns an error that makes an informer keep what it has and try again.
func unavailable(err error) error {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) || errors.Is(err, context.Canceled) {
		return err
	}
	return apierrors.NewServiceUnavailable("valkey: " + err.Error())
}

// errNotReady means that the objects are not a state that the source had.
var errNotReady = errors.New("the store has no version: the writer has not listed yet, or reads several namespaces, clusters or kinds")

// probe answers a list with a limit of 1. An informer sends it to find out whether it can continue from
// a version. It may also be the first page of an informer with PageSize 1, so the answer has a continue token.
func (s *Source) probe(ctx context.Context, version string) (runtime.Object, error) {
	h, err := s.look(ctx, "", "0-0", 1, s.writer())
	if n := parseVersion(version); err == nil && n != 0 {
		err = h.holds(n)
	}
	if err == nil {
		err = h.ready()
	}
	if err != nil {
		return nil, unavailable(err)
	}
	now := versionText(h.version)
	return &metav1.List{ListMeta: metav1.ListMeta{ResourceVersion: now, Continue: now}}, nil
}

// listing is a list that is being read.
type listing struct {
	epoch, log string
	session    string
	version    uint64 // of the last page
	as         id     // of the last entry that the first page includes
	objects    map[string]runtime.Object
	keys       []string // also of objects that were deleted meanwhile
}

func (s *Source) list(ctx context.Context) (*listing, error) {
	l := &listing{objects: map[string]runtime.Object{}}
	for after := ""; ; {
		head, page, err := s.page(ctx, after)
		if err != nil {
			return nil, err
		}
		if after == "" {
			l.epoch, l.log, l.session, l.as = head.epoch, head.log, head.session, head.last
		}
		if err := l.follows(head); err != nil {
			return nil, err
		}
		if err := s.ahead(head); err != nil {
			return nil, err
		}
		for i := 0; i < len(page); i += 2 {
			after = page[i]
			obj, err := s.decode(after, page[i+1])
			if err != nil {
				return nil, err
			}
			l.keys, l.objects[after] = append(l.keys, after), obj
		}
		if len(page) == 0 {
			break
		}
	}
	return s.catchUp(ctx, l)
}

func (s *Source) page(ctx context.Context, after string) (h head, page []string, err error) {
	reply, err := read(ctx, s.client, s.place, pageScript, "", "0", after, strconv.Itoa(pageObjects), strconv.Itoa(pageBytes))
	if err != nil {
		return head{}, nil, err
	}
	if page, err = reply.AsStrSlice(); err != nil {
		return head{}, nil, err
	}
	h = head{epoch: page[0], log: page[1], version: parseVersion(page[2]), session: page[4]}
	if h.last, err = parseID(page[3]); err != nil {
		return head{}, nil, err
	}
	return h, page[pageHead:], h.ready()
}

// follows returns nil if h has the same log and the same session as the page before, and no earlier
// version. Otherwise it returns a changedError. A server that went back may be at the same version
// again, with other ids in its log.
func (l *listing) follows(h head) error {
	switch {
	case h.epoch != l.epoch || h.log != l.log:
		return changedError{"the writer has listed again"}
	case h.session != l.session:
		return changedError{"another process writes"}
	case h.version < l.version:
		return changedError{"the server has gone back"}
	}
	l.version = h.version
	return nil
}

// catchUp brings a list to one version: it makes all changes since the first page. A later page may
// already have some of them. Made again in their order, they lead to the same state.
func (s *Source) catchUp(ctx context.Context, l *listing) (*listing, error) {
	for at := l.as; ; {
		h, err := s.look(ctx, l.log, at.String(), pageEntries, l.session)
		if err == nil {
			err = h.ready()
		}
		if err == nil {
			err = l.follows(h)
		}
		if err == nil && h.gone(at) {
			err = changedError{"the log is too short for the changes since it began (Options.Log of the writer)"}
		}
		if err != nil {
			return nil, err
		}
		for _, e := range h.entries {
			if err := l.change(s, e); err != nil {
				return nil, err
			}
			at = e.id
		}
		if len(h.entries) < pageEntries {
			return l, nil
		}
	}
}

func (l *listing) change(s *Source, e entry) error {
	if e.kind == "delete" {
		delete(l.objects, e.key)
		return nil
	}
	obj, err := s.decode(e.key, e.object)
	if err != nil {
		return err
	}
	if _, known := l.objects[e.key]; !known {
		l.keys = append(l.keys, e.key)
	}
	l.objects[e.key] = obj
	return nil
}

// result returns the list, and notes that the informer has it.
func (l *listing) result(s *Source) runtime.Object {
	slices.Sort(l.keys)
	list := &metav1.List{ListMeta: metav1.ListMeta{ResourceVersion: versionText(l.version)}}
	for _, key := range slices.Compact(l.keys) {
		if obj, ok := l.objects[key]; ok {
			list.Items = append(list.Items, runtime.RawExtension{Object: obj})
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.epoch, s.log, s.session, s.reached = l.epoch, l.log, l.session, l.version
	return list
}

// writer returns the session that wrote what the informer has got, or "" before the first list.
func (s *Source) writer() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.session
}

// ahead returns an error if the informer has a later version than the server, in the same epoch. A list
// would then lead to deletes that did not happen.
func (s *Source) ahead(h head) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.epoch == s.epoch && h.version < s.reached {
		return fmt.Errorf("the server has version %d, and this informer had %d: the writer has to catch up", h.version, s.reached)
	}
	return nil
}

func (s *Source) decode(key, payload string) (runtime.Object, error) {
	obj, err := s.codec.Decode([]byte(payload))
	if err != nil {
		return nil, fmt.Errorf("%q cannot be decoded: %w", key, err)
	}
	return obj, nil
}
