// Package testkit is the ground that the tests of this module share: config maps as the
// objects, informers over a simulated source, a plain store, and checks that compare what
// watchers and stores have with what the source has. Only tests import it.
//
// A test package gives short names to the parts that it needs, in its suite_test.go.
package testkit
