// Package process builds programs and runs them.
package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"sync"
	"syscall"
)

// Build builds the program of that import path into dir, with flags of go build, and
// returns its file.
func Build(ctx context.Context, dir, program string, flags ...string) (string, error) {
	file := filepath.Join(dir, path.Base(program))
	args := append([]string{"build", "-o", file}, flags...)
	if out, err := exec.CommandContext(ctx, "go", append(args, program)...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s: %w\n%s", program, err, out)
	}
	return file, nil
}

// Process is a program that runs, or has run.
type Process struct {
	Log *Log // what it wrote to standard error

	cmd   *exec.Cmd
	ended chan struct{} // closed when it has, with err
	err   error
}

// Start starts cmd, with its standard error in a Log.
func Start(cmd *exec.Cmd) (*Process, error) {
	p := &Process{Log: &Log{}, cmd: cmd, ended: make(chan struct{})}
	cmd.Stderr = p.Log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.ended)
		p.err = cmd.Wait()
	}()
	return p, nil
}

// Ended is closed when the process has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Kill ends the process as a crash would, with no time for anything, and returns when
// it has ended.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// Stop asks the process to end, and returns when it has: an error unless its exit code
// is 0. When ctx ends it is killed.
func (p *Process) Stop(ctx context.Context) error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.ended:
	case <-ctx.Done():
		p.Kill()
		return fmt.Errorf("the operator does not stop: %w\n%s", context.Cause(ctx), p.Log)
	}
	if p.err != nil {
		return fmt.Errorf("the operator: %w\n%s", p.err, p.Log)
	}
	return nil
}

// Log is what a process writes.
type Log struct {
	mu sync.Mutex // protects b
	b  bytes.Buffer
}

// Write is of io.Writer.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// String returns all that was written.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
