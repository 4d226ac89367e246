// Package model contains tests that play random operations against an informer and compare
// each result with a reference model. The model knows only the promises of the documentation.
//
// TestModel plays programs. A program is a setting (queue, store, options of the watchers) and
// a few dozen operations of a source, a store and watchers, such as update, relist, block,
// fail, crash and restart. A failure prints the shortest program that still fails, and the
// command that plays the program again. FuzzModel plays programs that the fuzzer makes up and
// those of the corpus in testdata. Each program of the corpus has broken something before, or
// resembles one that has.
//
// TestHistories plays restarts: several processes, one after the other, follow one source with
// one durable store, and each of them stops or crashes at some point.
//
//	go test -run 'TestModel$' ./internal/model -model-operations 1000000
//	go test -run 'TestModel$' ./internal/model -model-seed 17
//	go test -run TestHistories ./internal/model -histories 10000
//	go test -run TestHistories ./internal/model -history-seed 17
//	go test -run '^$' -fuzz FuzzModel -fuzztime 1m ./internal/model
package model
