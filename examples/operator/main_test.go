package main

import (
	"io"
	"testing"

	"k8s.io/klog/v2"

	"github.com/customcacheinformer/informer/informertest"
)

func TestMain(m *testing.M) {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	informertest.Main(m)
}
