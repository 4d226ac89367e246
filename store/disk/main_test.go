package disk_test

import (
	"flag"
	"os"
	"testing"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"go.uber.org/goleak"
)

// thorough makes the tests take minutes; by default they take a minute, and less with -short.
var thorough = flag.Bool("thorough", false, "damage files, and kill processes, several times as often")

// helpers are the programs, by name, that this one runs as when a test starts it again.
var helpers = map[string]func(args []string){}

// helperVariable is the environment variable with the name of the helper to run.
const helperVariable = "DISK_TEST_HELPER"

// often returns how often a test does something: n times, a third of that with -short, and most
// times with -thorough.
func often(n, most int) int {
	switch {
	case *thorough:
		return most
	case testing.Short():
		return max(1, n/3)
	}
	return n
}

func TestMain(m *testing.M) {
	if name := os.Getenv(helperVariable); name != "" {
		helpers[name](os.Args[1:])
		os.Exit(0)
	}
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1] // see informertest.Main
	goleak.VerifyTestMain(m)
}
