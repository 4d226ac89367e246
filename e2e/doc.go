// Package e2e tests the informer against a real Kubernetes API server. Package apiserver runs
// that server inside the process. Command demo is an example program.
package e2e
