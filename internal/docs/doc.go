// Package docs has the tests of the documentation: its code, its figures, its links, and the examples
// that it promises.
package docs
