// Package server runs Valkey or Redis servers for tests.
package server

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/valkey-io/valkey-go"
)

// Server is a server in a process of its own, with an append-only file.
type Server struct {
	t      testing.TB
	port   int
	args   []string
	client valkey.ClientOption
	cmd    *exec.Cmd
}

// Path returns the program of the server. If there is none, the test is skipped, or fails if the
// environment has VALKEY=required.
func Path(t testing.TB) string {
	t.Helper()
	for _, name := range []string{"valkey-server", "redis-server"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	const message = "there is neither valkey-server nor redis-server: make valkey installs it"
	if os.Getenv("VALKEY") == "required" {
		t.Fatal(message)
	}
	t.Skip(message)
	return ""
}

// Start starts a server with additional arguments, such as --maxmemory 10mb. The end of the test
// kills it.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	return StartWith(t, valkey.ClientOption{}, args...)
}

// StartWith is like Start. The clients of the server have these options besides its address.
func StartWith(t testing.TB, client valkey.ClientOption, args ...string) *Server {
	t.Helper()
	s := &Server{t: t, port: freePort(t), client: client}
	port := "--port"
	if client.TLSConfig != nil {
		args = append(args, "--port", "0")
		port = "--tls-port"
	}
	s.args = append([]string{
		Path(t), port, strconv.Itoa(s.port), "--bind", "127.0.0.1", "--dir", t.TempDir(), "--save", "",
		"--appendonly", "yes", "--appendfsync", "everysec", "--loglevel", "warning", "--logfile", "server.log",
	}, args...)
	t.Cleanup(func() {
		if s.cmd != nil {
			s.Kill()
		}
	})
	s.Restart()
	return s
}

func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port
}

// Addr returns the address of the server.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// Restart starts the server, which must not run, and waits until it answers.
func (s *Server) Restart() {
	s.t.Helper()
	s.cmd = exec.Command(s.args[0], s.args[1:]...)
	s.cmd.Stdout, s.cmd.Stderr = os.Stderr, os.Stderr
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	deadline := time.Now().Add(30 * time.Second)
	for {
		err := s.ping()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("the server does not answer: %v", err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (s *Server) ping() error {
	client, err := s.dial(s.Addr())
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return client.Do(ctx, client.B().Ping().Build()).Error()
}

// Kill kills the server.
func (s *Server) Kill() {
	s.t.Helper()
	s.Resume()
	if err := s.cmd.Process.Kill(); err != nil {
		s.t.Error(err)
	}
	_ = s.cmd.Wait() // its error is that it was killed
	s.cmd = nil
}

// Pause stops the process of the server until Resume.
func (s *Server) Pause() { s.signal(syscall.SIGSTOP) }

// Resume ends a pause.
func (s *Server) Resume() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Error(err)
	}
}

// Client returns a client of the server. The end of the test closes it.
func (s *Server) Client() valkey.Client { return s.ClientAt(s.Addr()) }

// ClientAt returns a client of an address, such as that of a proxy.
func (s *Server) ClientAt(addr string) valkey.Client {
	s.t.Helper()
	client, err := s.dial(addr)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(client.Close)
	return client
}

func (s *Server) dial(addr string) (valkey.Client, error) {
	opts := s.client
	opts.InitAddress, opts.DisableCache, opts.ForceSingleClient = []string{addr}, true, true
	return valkey.NewClient(opts)
}

// Do sends a command, and returns its reply as text.
func (s *Server) Do(args ...string) string {
	s.t.Helper()
	client, err := s.dial(s.Addr())
	if err != nil {
		s.t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	reply, err := client.Do(ctx, client.B().Arbitrary(args...).Build()).ToAny()
	if err != nil && !valkey.IsValkeyNil(err) {
		s.t.Fatalf("%v: %v", args, err)
	}
	return fmt.Sprint(reply)
}
