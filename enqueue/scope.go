package enqueue

import (
	"errors"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"
)

// errScope is wrapped by the error about a key that no object of a controller's [For] can have, see
// [Owns].
var errScope = errors.New("no object of For can have such a key")

type scope struct {
	namespaced, clusterScoped atomic.Bool // such objects were seen
	reported                  atomic.Bool
}

func (s *scope) saw(namespace string) {
	seen := &s.namespaced
	if namespace == "" {
		seen = &s.clusterScoped
	}
	if !seen.Load() {
		seen.Store(true)
	}
}

// excludes reports whether it is certain that no object can have key. It returns false if no objects
// were seen, or both kinds of them.
func (s *scope) excludes(key any) bool {
	name, ok := key.(types.NamespacedName)
	if in, clusters := key.(Key); clusters {
		name, ok = in.NamespacedName, true
	}
	namespaced, clusterScoped := s.namespaced.Load(), s.clusterScoped.Load()
	return ok && namespaced != clusterScoped && namespaced == (name.Namespace == "")
}
