package apiserver

import (
	"log"

	"go.uber.org/goleak"
)

// ExitCode returns the exit code of a test program, given the code that its tests returned. It
// is 1 instead of 0 if the tests passed but left goroutines running other than those of
// ignored; ExitCode logs these. Call it when all servers have stopped. It waits up to a few
// seconds for goroutines that are about to end.
func ExitCode(code int, ignored ...goleak.Option) int {
	timers := goleak.IgnoreAnyFunction("k8s.io/apiserver/pkg/storage/cacher.(*watchCache).waitUntilFreshLocked.func2") // see Stop
	if err := goleak.Find(append(ignored, timers)...); err != nil && code == 0 {
		log.Print(err)
		return 1
	}
	return code
}
