// Package eventlog provides a log that one goroutine writes and any number of goroutines
// read, each at its own pace.
//
// Append never waits for a reader. The garbage collector frees a chunk of records once every
// cursor has passed it, and the last chunk of a quiet log once SealIfIdle has ended it. The
// package imports nothing of Kubernetes and starts no goroutine.
package eventlog
