// Package extremes tries each number that a user can set, such as a duration, a count or a size,
// with its largest and its smallest value, with zero and with -1. Either the value is refused
// with an error that names the setting, or everything works with it.
//
// [Run] finds the numbers in the exported API of a module: the fields of structs, the arguments
// of functions, and the results of functions that a user writes. It fails a test if the module's
// table lacks one of them. So each published module has a table in its tests, and a new option
// is in that table or fails its test. Only tests import this package. Its own tests have the
// table of the root module.
package extremes
