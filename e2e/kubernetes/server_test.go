package kubernetes_test

import (
	"strings"
	"testing"
)

func TestStartReturnsTheReasonWhyAServerCannotRun(t *testing.T) {
	c := newCluster(t, shared)
	if _, err := program.Start(c.ctx, "--feature-gates=NoSuchGate=true"); err == nil || !strings.Contains(err.Error(), "NoSuchGate") {
		t.Errorf("Start returns %v", err)
	}
}
