// Package migrating holds the code of the migration guides in docs, as tests, and
// [Check], which proves that the code in these guides, and in the README, is that of
// the tests.
package migrating
