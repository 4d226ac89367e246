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

// childArgument is the only argument of a process that is a manager.
const childArgument = "manager"

func isChild(args []string) bool { return len(args) == 2 && args[1] == childArgument }

// task is the first line to a child: what it is to be.
type task struct {
	work
	subject
	Host, Token string
	CA          []byte
}

// What a child can be asked for afterwards.
const (
	opStart = "start" // run, and answer when everything was reconciled once
	opBegin = "begin" // measuring anew
	opReach = "reach" // answer when everything is at Generations
	opIdle  = "idle"  // collect garbage, do nothing for a while, then answer
)

// request is a line to the child, which answers each with a reply.
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
	replies chan reply // closed when there will be no more
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

// ask has the child do something, and returns what it measured meanwhile.
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

// close ends the child, by the end of its input, and returns when it has.
func (c *child) close() error {
	err := c.in.Close()
	for range c.replies { // one that nobody waited for would keep the reader from returning
		continue
	}
	return errors.Join(err, c.cmd.Wait())
}
