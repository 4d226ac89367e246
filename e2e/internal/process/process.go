// Package process builds programs and runs them.
package process

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Build builds the program with the given import path into dir, with flags of go build. It
// returns the path of the executable.
func Build(ctx context.Context, dir, program string, flags ...string) (string, error) {
	file := filepath.Join(dir, path.Base(program))
	args := append([]string{"build", "-o", file}, flags...)
	if out, err := exec.CommandContext(ctx, "go", append(args, program)...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s: %w\n%s", program, err, out)
	}
	return file, nil
}

// Process is a program that runs or has run.
type Process struct {
	Log *Log           // everything that it wrote to standard error
	In  io.WriteCloser // its standard input, if Self has started it

	cmd   *exec.Cmd
	ended chan struct{} // closed when the process has exited; err is set before
	err   error
}

// Start starts cmd and collects its standard error in a Log.
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

// Self starts this program in one of its lab.Roles. Its output goes to out, which may be nil.
func Self(role string, argument any, out io.Writer) (*Process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(argument)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(program, role, string(text))
	cmd.Stdout = out
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0") // under the race detector, it would sleep before it ends
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	p, err := Start(cmd)
	if err != nil {
		return nil, err
	}
	p.In = in
	return p, nil
}

// Crashed returns the end of the log if the process has had a data race or a panic.
func (p *Process) Crashed() error {
	if text := p.Log.String(); strings.Contains(text, "DATA RACE") || strings.Contains(text, "panic:") {
		return errors.New("the log of the process:\n" + text[max(0, len(text)-5000):])
	}
	return nil
}

// Ended returns a channel that is closed when the process has exited.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Kill ends the process without warning, as a crash would, and returns when it has exited.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// Signal sends a signal to the process.
func (p *Process) Signal(signal os.Signal) error { return p.cmd.Process.Signal(signal) }

// Pause stops the process until it gets SIGCONT. It returns when the process has stopped, because a
// process on a busy machine may still run after the signal was sent. It needs /proc.
func (p *Process) Pause(ctx context.Context) error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
		if err != nil {
			return err
		}
		if _, state, _ := strings.Cut(string(stat), ") "); strings.HasPrefix(state, "T") {
			return nil
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("the process does not stop: %w", context.Cause(ctx))
		}
	}
}

// Stop asks the process to end and returns when it has exited. It returns an error unless the
// exit code is 0. If ctx ends first, it kills the process and returns an error.
func (p *Process) Stop(ctx context.Context) error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.ended:
	case <-ctx.Done():
		p.Kill()
		return fmt.Errorf("the process does not stop: %w\n%s", context.Cause(ctx), p.Log)
	}
	if p.err != nil {
		return fmt.Errorf("the process: %w\n%s", p.err, p.Log)
	}
	return nil
}

// Log collects the output of a process.
type Log struct {
	mu sync.Mutex // protects b
	b  bytes.Buffer
}

// Write implements io.Writer.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// String returns everything that was written.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
