package object

import (
	"cmp"
	"hash/maphash"
	"slices"
)

// Keys is a set of keys. It has 128 bits of each key instead of the key, so that a million keys take
// some 18 MB. That two keys have the same 128 bits is less likely than an error of the memory. Only
// one goroutine at a time may use it.
type Keys struct {
	// buckets has the bits by their first byte. Small slices grow without taking much memory twice.
	buckets [256][]bits
	sorted  bool
}

type bits [2]uint64

func (b bits) compare(other bits) int {
	return cmp.Or(cmp.Compare(b[0], other[0]), cmp.Compare(b[1], other[1]))
}

// seeds are others in each process, so that no client can choose keys with the same bits.
var seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

func bitsOf(key string) bits {
	return bits{maphash.String(seeds[0], key), maphash.String(seeds[1], key)}
}

// Add adds a key.
func (k *Keys) Add(key string) {
	b := bitsOf(key)
	bucket := &k.buckets[b[0]>>56]
	*bucket = append(*bucket, b)
	k.sorted = false
}

// Has reports whether the set has a key. The first call after Add takes time for each key.
func (k *Keys) Has(key string) bool {
	if !k.sorted {
		for _, bucket := range k.buckets {
			slices.SortFunc(bucket, bits.compare)
		}
		k.sorted = true
	}
	b := bitsOf(key)
	_, has := slices.BinarySearchFunc(k.buckets[b[0]>>56], b, bits.compare)
	return has
}
