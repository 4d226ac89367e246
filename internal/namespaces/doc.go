// Package namespaces has no code. Its tests are about informers over several namespaces, some of
// which fail.
package namespaces
