package source

import (
	"hash/maphash"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// quietStream is how long a source waits for the next object of a stream of the first state before it
	// lists instead.
	quietStream = 10 * time.Second
	// doubtfulStream is how long a source waits for an object that surely belongs to the first state. An
	// object with a higher version than all before it may have been created since the stream began.
	doubtfulStream = 40 * time.Second
)

// firstState measures how long a source has waited for the next object of a first state. Changes of known
// objects do not end the wait, so traffic cannot keep the source waiting forever. The time that the sink
// takes does not count.
type firstState struct {
	seen            map[uint64]struct{} // hashes of names; two names with the same hash do no harm
	newest          string              // the highest version of an object so far
	quiet, doubtful time.Duration       // waited since the last new object, and since the last that surely belongs to the first state
}

var nameSeed = maphash.MakeSeed()

// left returns how long the source may still wait.
func (s *firstState) left() time.Duration { return min(quietStream-s.quiet, doubtfulStream-s.doubtful) }

// took records an added object of the stream.
func (s *firstState) took(obj metav1.Object) {
	name := maphash.String(nameSeed, obj.GetNamespace())*31 + maphash.String(nameSeed, obj.GetName())
	if _, again := s.seen[name]; again {
		return
	} else if s.seen == nil {
		s.seen = map[uint64]struct{}{}
	}
	s.seen[name], s.quiet = struct{}{}, 0
	if version := obj.GetResourceVersion(); older(version, s.newest) {
		s.doubtful = 0
	} else {
		s.newest = version
	}
}
