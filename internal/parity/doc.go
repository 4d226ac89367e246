// Package parity contains tests that compare the library's cache.SharedIndexInformer with
// client-go's. Each case runs with both, and usually expects the same of both. Where the two
// differ on purpose, the case checks which one it has, and a comment gives the reason. The differences
// are listed in docs/differences-from-client-go.md. TestDifferences has the differences that
// need a test of their own.
package parity
