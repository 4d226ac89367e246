// Package clusters contains tests of informers over clusters that come and go.
package clusters
