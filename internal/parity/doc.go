// Package parity has no code. Its tests compare the informer that shows itself as a
// cache.SharedIndexInformer with client-go's own: each case runs against both, and the
// expectation holds for both. Where the two differ on purpose, the case asks which one it
// has, and a comment says why. The differences are in docs/differences-from-client-go.md;
// TestDifferences has those that need a situation of their own.
package parity
