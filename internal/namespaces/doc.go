// Package namespaces contains tests of informers over several namespaces, some of
// which fail.
package namespaces
