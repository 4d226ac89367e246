// Package namespaces has no code. Its tests are about informers over several namespaces, of
// which some fail.
package namespaces
