package main

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/klog/v2"
)

func TestMain(m *testing.M) {
	if isChild(os.Args) { // the API server's section starts this program again
		exit(beChild(os.Stdin, os.Stdout, os.Args[2]))
	}
	if isSharing(os.Args) { // and so does the section about sharing
		exit(beSharing(os.Stdout, os.Args[2]))
	}
	klog.SetLogger(klog.Logger{})
	code := m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
