// Package migrating holds the code of the migration guides in docs, as tests. Package internal/docs
// verifies that the code in the guides is the code of the tests.
package migrating
