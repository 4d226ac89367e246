package main

import (
	"testing"

	"go.uber.org/goleak"
	"k8s.io/klog/v2"
)

func TestMain(m *testing.M) {
	roles.Play() // some sections start this program again
	klog.SetLogger(klog.Logger{})
	goleak.VerifyTestMain(m)
}
