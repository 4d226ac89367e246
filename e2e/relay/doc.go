// Package relay tests module relay over a real API server: what agents get, what the API server is
// asked for, and what happens when either is disturbed.
package relay
