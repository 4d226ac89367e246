package object

import (
	"cmp"
	"hash/maphash"
	"slices"
)

// Keys is a set of keys. It keeps a hash of 128 bits instead of each key, so a million keys take
// about 18 MB. Two keys with the same hash are less likely than an error of the memory. Only one
// goroutine at a time may use it.
type Keys struct {
	// buckets has the hashes by their first byte. With many small slices, growing one needs little
	// memory.
	buckets [256][]bits
	sorted  bool
}

type bits [2]uint64

func (b bits) compare(other bits) int {
	return cmp.Or(cmp.Compare(b[0], other[0]), cmp.Compare(b[1], other[1]))
}

// seeds differ in each process, so that no client can choose keys with the same hash.
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

// Has reports whether the set has a key. The first call after Add sorts all keys.
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
