// Package testkit provides the helpers that the tests of this module share: config maps as objects,
// informers over a simulated source, a plain store, and checks that compare the state of
// watchers and stores with the state of the source. Only tests import it.
//
// In its suite_test.go, a test package gives short names to the helpers it needs.
package testkit
