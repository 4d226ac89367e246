package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// childArgument is the only argument of a process that runs a manager.
const childArgument = "manager"

func isChild(args []string) bool { return len(args) == 2 && args[1] == childArgument }

// task is the first line sent to a child. It says which manager to run.
type task struct {
	work
	subject
	Host, Token string
	CA          []byte
}

// These are the operations of the requests that follow.
const (
	opStart = "start" // run, and answer when everything has been reconciled once
	opBegin = "begin" // begin a new measurement
	opReach = "reach" // answer when everything is at Generations
	opIdle  = "idle"  // collect garbage, do nothing for a while, then answer
)

// request is a line sent to the child. The child answers each request with a reply.
type request struct {
	Op          string
	Generations map[int]int64
	Idle        time.Duration
}

type reply struct {
	Phase phase
	Error string
}

// child is a manager in a process of its own.
type child struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	replies chan reply // closed when no more replies will come
}

func startChild(ctx context.Context, t task) (*child, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{cmd: exec.CommandContext(ctx, program, childArgument), replies: make(chan reply)}
	c.cmd.Stderr = os.Stderr
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(c.replies)
		for decoder := json.NewDecoder(out); ; {
			var r reply
			if decoder.Decode(&r) != nil {
				return
			}
			c.replies <- r
		}
	}()
	if err := json.NewEncoder(c.in).Encode(t); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

// ask sends the child a request, and returns the measurements of its reply.
func (c *child) ask(ctx context.Context, r request) (phase, error) {
	if err := json.NewEncoder(c.in).Encode(r); err != nil {
		return phase{}, fmt.Errorf("asking the manager's process to %s: %w", r.Op, err)
	}
	select {
	case r, open := <-c.replies:
		if !open {
			return phase{}, errors.New("the manager's process has ended")
		}
		if r.Error != "" {
			return phase{}, errors.New(r.Error)
		}
		return r.Phase, nil
	case <-ctx.Done():
		return phase{}, context.Cause(ctx)
	}
}

// close ends the child by closing its input, and returns when the child has ended.
func (c *child) close() error {
	err := c.in.Close()
	for range c.replies { // an unread reply would block the goroutine that reads
		continue
	}
	return errors.Join(err, c.cmd.Wait())
}
