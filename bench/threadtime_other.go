//go:build !linux

package main

import (
	"time"

	"github.com/customcacheinformer/informer/internal/lab"
)

// threadTime returns the processor time of this process so far: there is no clock for a thread that
// all systems have. So the garbage collector's time is in it, too.
func threadTime() time.Duration { return lab.CPU() }
