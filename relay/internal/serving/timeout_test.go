package serving

import (
	"net/http"
	"testing"
	"time"
)

func TestAWatchLastsNoLongerThanTheServerAllows(t *testing.T) {
	f := serve(t, func(c *Config) { c.Generic.MinRequestTimeout = 1 })
	f.pods.set(t, pod("a", "n1"))
	f.settle(t)
	begun := time.Now()
	f.get(t, podPath+"?watch=true&timeoutSeconds=3600", http.StatusOK) // returns when the watch ends
	t.Logf("the watch lasted %v", time.Since(begun).Round(time.Millisecond))
	f.get(t, podPath+"?watch=true&timeoutSeconds=9223372036854775807", http.StatusOK)
	f.get(t, podPath+"?watch=true&timeoutSeconds=-9223372037", http.StatusOK)
}
