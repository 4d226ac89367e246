package disk_test

import (
	"flag"
	"os"
	"testing"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"go.uber.org/goleak"
)

// thorough is for minutes; what runs by default takes half of one.
var thorough = flag.Bool("thorough", false, "damage files, and kill processes, several times as often")

// helpers are what this program is when a test has started it again, by name.
var helpers = map[string]func(args []string){}

// helperVariable is set for such a process.
const helperVariable = "DISK_TEST_HELPER"

func TestMain(m *testing.M) {
	if name := os.Getenv(helperVariable); name != "" {
		helpers[name](os.Args[1:])
		os.Exit(0)
	}
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1] // see informertest.Main
	goleak.VerifyTestMain(m)
}
