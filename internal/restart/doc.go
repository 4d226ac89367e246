// Package restart has no code. Its tests are about stores and restarts: a start with the
// contents, the bookmark and the tombstones of an earlier process, stores that fail, hang or
// refuse an object, and stores that are read in pages.
package restart
