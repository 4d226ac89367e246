// Package manager tests whole controller-runtime managers against a real API server. Each test
// runs with every informer that a manager can have: client-go's, and this library's with
// either queue. A manager must not notice any difference except those that are documented.
// Features that only this library has are tested separately.
//
// Command compare, in a subdirectory, measures a manager with many controllers.
package manager
