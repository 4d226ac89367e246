// Package plan divides keys into buckets, and buckets among the replicas of a set. It makes no
// requests and holds no state, so its results depend on its arguments only.
package plan

import (
	"hash/fnv"
	"strings"
)

// Namespace returns the namespace of a key, "" if it has none.
func Namespace(key string) string {
	namespace, _, ok := strings.Cut(key, "/")
	if !ok {
		return ""
	}
	return namespace
}

// Bucket returns the bucket of a key of a set that does not divide by namespace.
func Bucket(key string, buckets int) int {
	return int(hash(key) % uint64(buckets))
}

// hash returns a number whose lower bits depend on all of text, also if texts differ only at their
// ends, as the upper bits of FNV do.
func hash(text string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text))
	x := h.Sum64()
	return x ^ x>>32
}
