// Package eventlog provides a log that one goroutine writes and any number of goroutines
// read, each at its own pace.
//
// Append never waits for a reader. A record is garbage once every cursor has passed it, and
// the last records of a quiet log are once SealIfIdle has ended their chunk. The package
// imports nothing of Kubernetes and starts no goroutine.
package eventlog
