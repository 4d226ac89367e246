package informer

import (
	"strings"
	"sync/atomic"

	"github.com/customcacheinformer/informer/internal/version"
)

// scope is what one source reads: the objects of one namespace, or all. An informer over
// several namespaces has a scope for each. All share one order of versions, but each source has
// read up to a version of its own.
type scope struct {
	namespace string      // "" if the objects may be in any namespace
	listed    atomic.Bool // the first list is applied, or the source has resumed

	// changed is the highest version of an object or a delete that the store has, or is about to
	// get. The applier raises it before it touches the store.
	changed version.Highest

	// These are protected by gate.mu.
	waiting int    // items that have entered and are not applied
	rv      string // everything up to this version is applied
	base    string // the version of the last list, or at which the source has resumed

	watchOnly bool // every item since the start came from a watch; belongs to the applier
}

// isLate reports whether the first list is not applied.
func (s *scope) isLate() bool { return !s.listed.Load() }

// covers reports whether the object of that key belongs to the scope.
func (s *scope) covers(key string) bool {
	return strings.HasPrefix(key, s.prefix())
}

// prefix returns how the keys of the scope's objects begin.
func (s *scope) prefix() string {
	if s.namespace == "" {
		return ""
	}
	return s.namespace + "/"
}
