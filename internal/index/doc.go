// Package index reads a store: page by page, by key, and by the values of index functions. It works
// with any cache.Store, and with stores that are given keys. It uses the store's own indexes if there
// are any, and otherwise indexes in memory that follow the writes of the store.
package index

// The parts of the package.
//
//   - index.go finds objects by a value. native.go decides whether the store has its own indexes. If not, overlay.go has
//     indexes in memory. functions.go has index functions.
//   - scan.go reads a store by key and page by page. pages.go shares pages among watchers that join, and decides how long
//     the store rests between them.
//   - indexer.go shows an Index as client-go's cache.Indexer, and view.go a store with given keys as a cache.Store.
