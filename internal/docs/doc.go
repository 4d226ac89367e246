// Package docs contains tests that check the documentation: its code, its figures, its links, and
// the examples that it promises.
package docs
