// Package sinks contains tests of informers that fill a sink.
package sinks
