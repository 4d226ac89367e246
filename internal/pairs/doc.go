// Package pairs has the tests of docs/together.md: each row of its tables is one, or names one.
package pairs
