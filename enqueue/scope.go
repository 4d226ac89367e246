package enqueue

import (
	"errors"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"
)

// errScope is in the error that reports a key that no object of a controller's For can have, see Owns.
var errScope = errors.New("no object of For can have such a key")

type scope struct {
	namespaced, clusterScoped atomic.Bool // there are such objects
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

// excludes reports whether no object can have key. Without objects, or with both kinds of them, that
// is not known.
func (s *scope) excludes(key any) bool {
	name, ok := key.(types.NamespacedName)
	if in, clusters := key.(Key); clusters {
		name, ok = in.NamespacedName, true
	}
	namespaced, clusterScoped := s.namespaced.Load(), s.clusterScoped.Load()
	return ok && namespaced != clusterScoped && namespaced == (name.Namespace == "")
}
