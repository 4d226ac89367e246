package apiserver

import (
	"flag"
	"fmt"
	"io"
	"os"
	"sync"

	"k8s.io/klog/v2"
)

// logVariable names the environment variable that makes the logs visible.
const logVariable = "APISERVER_LOG"

// setUpLogs applies the environment variable to klog. It uses only those settings of klog that
// may be changed while other goroutines log.
var setUpLogs = sync.OnceValue(func() error {
	var flags flag.FlagSet
	klog.InitFlags(&flags)
	if verbosity := os.Getenv(logVariable); verbosity != "" {
		if err := flags.Set("v", verbosity); err != nil {
			return fmt.Errorf("%s: %w", logVariable, err)
		}
		return nil
	}
	klog.SetOutput(io.Discard)
	klog.LogToStderr(false)
	return flags.Set("stderrthreshold", "FATAL")
})

// etcdLogLevel returns the level of etcd's own logger, which writes to
// standard error.
func etcdLogLevel() string {
	if os.Getenv(logVariable) == "" {
		return "fatal"
	}
	return "info"
}
