// Package e2e tests the informer against a real Kubernetes API server; see
// package apiserver for how it runs inside the process, and demo for a program.
package e2e
