// Package restart contains tests of stores and restarts: a start with the
// contents, the bookmark and the tombstones of an earlier process, stores that fail, hang or
// refuse an object, and stores that are read in pages.
package restart
