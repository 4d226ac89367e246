// Package callbacks has no code. Its test calls every method of the library inside every callback
// of the library. Each method must work there, or return the error that is documented, and
// nothing may deadlock. Methods come from the method sets, and the functions of the options by
// reflection, so that a new one is included by itself.
package callbacks
