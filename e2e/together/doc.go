// Package together contains only a test. It runs most parts of the library at the same time in one program, over two
// API servers in processes of their own, which change Pods all the time:
//
//	go test -count=1 -timeout 0 -v ./together -together 2h -pods 30000 -table /tmp/figures.md
//
// Connections are cut, refused and silenced meanwhile. A kind and a replica come and go, and so do namespaces. Now and
// then the servers rest. Each part must then have exactly the objects of its server. The test prints a table of the
// memory over time. If it runs for at least ten minutes, it fails if goroutines, memory or metrics have grown.
package together
