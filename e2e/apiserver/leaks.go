package apiserver

import (
	"log"

	"go.uber.org/goleak"
)

// ExitCode returns with what a program of tests should exit: code, as the tests have
// returned it, or 1 if they have passed and left goroutines that are none of ignored, which
// it logs. It is called when all servers have stopped, and waits up to a few seconds for goroutines
// that are about to end.
func ExitCode(code int, ignored ...goleak.Option) int {
	timers := goleak.IgnoreAnyFunction("k8s.io/apiserver/pkg/storage/cacher.(*watchCache).waitUntilFreshLocked.func2") // see Stop
	if err := goleak.Find(append(ignored, timers)...); err != nil && code == 0 {
		log.Print(err)
		return 1
	}
	return code
}
