// Package pairs contains the tests for docs/together.md: each row of its tables is a test, or names
// one.
package pairs
