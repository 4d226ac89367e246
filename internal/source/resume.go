package source

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// resumeWait is for how long a watch that goes on from an old version is watched for
// the news that this version is gone. An API server takes every watch and says so in
// the stream, at once, while a watch that is good may be silent for a minute.
const resumeWait = 100 * time.Millisecond

// resumption is how a source begins at the version of a durable store. A reflector
// cannot be told where to start, but it watches from the version of what it has
// listed: so it is made to list, and given an empty list of that version, which the
// inlet does not take for one.
type resumption struct {
	mu     sync.Mutex
	at     string // the version; "" if there is none, or no more
	listed bool   // the reflector was given the list
}

// version returns where to begin, or "".
func (r *resumption) version() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.at
}

// begin has the source begin at a version, which may be "".
func (r *resumption) begin(version string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at = version
}

// list notes that the reflector is given the list, and taken that it has passed it on.
func (r *resumption) list() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.listed = true
}

func (r *resumption) taken() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	listed := r.listed
	r.listed = false
	return listed
}

// end returns the version at which a watch has begun, or cannot begin, and "" if that
// was settled before.
func (r *resumption) end() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := r.at
	r.at = ""
	return at
}

// resume answers a list with an empty one if the source can go on where the store
// stands. Otherwise it returns nil, and the list is to be made.
func (s *Source) resume(ctx context.Context) (runtime.Object, error) {
	at := s.resumption.version()
	if at == "" {
		return nil, nil
	}
	if err := s.probe(ctx, at); err != nil {
		if isExpired(err) {
			s.resumption.end()
			return nil, nil
		}
		return nil, err
	}
	s.resumption.list()
	return &metav1.List{ListMeta: metav1.ListMeta{ResourceVersion: at}}, nil
}

// probe asks the server for its present version. If that is older than version, the
// server was restored from a backup: it would take a watch from version, and be silent
// until it is there once more, and a list that need not be older would wait for that.
// So probe returns an error which says that the version is gone.
func (s *Source) probe(ctx context.Context, version string) error {
	list, err := s.list(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return err
	}
	m, err := meta.ListAccessor(list)
	if err != nil {
		return fmt.Errorf("%T is no list: %w", list, err)
	}
	s.suspect.Store(false)
	now := m.GetResourceVersion()
	order, err := resourceversion.CompareResourceVersion(now, version)
	switch {
	case err != nil:
		return apierrors.NewResourceExpired(fmt.Sprintf("versions %q and %q cannot be compared: %v", now, version, err))
	case order < 0:
		s.wentBack.Store(true)
		return apierrors.NewResourceExpired(fmt.Sprintf("the server is at resourceVersion %s, before %s", now, version))
	}
	return nil
}

// afresh has a list ask for what there is now if the server has gone back in time: as of a
// version that is lost, it would wait until there is one once more. It has a list in pages do
// the same: without that, the API server answers the first in one piece, and after a restart
// of it with a state that is too old to be watched from.
func (s *Source) afresh(ctx context.Context, opts *metav1.ListOptions) error {
	if opts.Continue != "" {
		return nil
	}
	if err := s.checkSuspect(ctx, opts.ResourceVersion); err != nil && !isExpired(err) {
		return err
	}
	paged := s.pageSize > 0 && opts.SendInitialEvents == nil
	if paged || s.wentBack.Load() {
		opts.ResourceVersion = ""
		if opts.SendInitialEvents == nil {
			opts.ResourceVersionMatch = ""
		}
	}
	return nil
}

// IsAnyVersion reports whether a server may answer with whatever state it has.
func IsAnyVersion(version string) bool { return version == "" || version == "0" }

// accepted notes that the watch which goes on from an old version is good.
func (s *Source) accepted() {
	if at := s.resumption.end(); at != "" {
		s.tell.Resumed(at)
	}
}
