// Package callbacks contains only a test, which calls every method of the library inside every callback
// of the library. Each method must work there, or return the error that is documented, and
// nothing may deadlock. The test finds methods and the functions of options by reflection, so it
// includes new ones automatically.
package callbacks
