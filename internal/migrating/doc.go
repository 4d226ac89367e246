// Package migrating holds the code of the migration guides in docs, as tests, and [Check],
// which verifies that the code in these guides, and in the README, is the code of the tests.
package migrating
