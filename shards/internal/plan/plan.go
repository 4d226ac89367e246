// Package plan divides keys into buckets, and buckets among the replicas of a set. It makes no
// requests and holds no state. Its results depend only on the arguments.
package plan

import (
	"hash/fnv"
	"strings"
)

// Namespace returns the namespace of a key, or "" if it has none.
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

// hash returns a number whose lower bits depend on all of text, even if two texts differ only at
// their ends. It mixes the upper bits of FNV into the lower ones.
func hash(text string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text))
	x := h.Sum64()
	return x ^ x>>32
}
