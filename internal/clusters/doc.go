// Package clusters has no code. Its tests are about informers over clusters that come and go.
package clusters
