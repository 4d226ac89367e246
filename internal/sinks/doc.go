// Package sinks has no code. Its tests are about informers that fill a sink.
package sinks
