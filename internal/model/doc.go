// Package model has no code. Its tests play random operations against an informer, and
// compare each result with a reference that knows only the promises of the documentation.
//
// TestModel plays programs: a setting (queue, store, options of the watchers) and some dozens
// of operations of a source, a store and watchers, such as update, relist, block, fail, crash
// and restart. A failure prints the shortest program that still fails and the command that
// plays it again. FuzzModel plays programs that the fuzzer makes up, and those of the corpus in
// testdata, which are of a kind that has broken something before, or could.
//
// TestHistories plays restarts: processes follow one source over one durable store, and each
// of them is stopped or crashes somewhere.
//
//	go test -run 'TestModel$' ./internal/model -model-operations 1000000
//	go test -run 'TestModel$' ./internal/model -model-seed 17
//	go test -run TestHistories ./internal/model -histories 10000
//	go test -run TestHistories ./internal/model -history-seed 17
//	go test -run '^$' -fuzz FuzzModel -fuzztime 1m ./internal/model
package model
