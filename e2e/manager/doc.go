// Package manager tests whole controller-runtime managers against a real API server,
// each test with every informer that a manager can have: client-go's, and this
// library's with either queue. A manager must not be able to tell them apart but
// where the documentation says so. What only this library has is tested beside it.
//
// compare, below, measures a manager of many controllers.
package manager
