// Package extremes tries each number that a user can set, such as a duration, a count or a size,
// with its largest and its smallest value, with zero and with -1. The module must either refuse
// the value with an error that names the setting, or work with it.
//
// [Run] finds the numbers in the exported API of a module: the fields of structs, the arguments
// of functions, and the results of functions that a user writes. It fails the test if the
// module's table lacks one of them. Each published module has a table in its tests, so the test
// fails for a new option that is not in the table. Only tests import this package. Its own tests
// have the table of the root module.
package extremes
