package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// childArgument is the first argument of the process that is the API server. Its
// second is where to write the kubeconfig.
const childArgument = "api-server"

// What the child can be asked for.
const (
	opCreate = "create" // that many objects
	opUpdate = "update" // that many times one of them
)

// request is a line to the child, which answers each with a reply, and says with a
// first one that it is ready.
type request struct {
	Op    string
	Count int
}

type reply struct{ Error string }

// child is an API server in a process of its own, which is this program again.
type child struct {
	kubeconfig string
	dir        string
	cmd        *exec.Cmd
	in         io.WriteCloser
	replies    chan reply // closed when there will be no more
}

// patience is how long the child may take to clean up once ctx has ended.
const patience = 15 * time.Second

// startChild returns when the API server is ready. It ends if ctx does.
func startChild(ctx context.Context) (c *child, err error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return nil, err
	}
	kubeconfig := filepath.Join(dir, "kubeconfig")
	c = &child{kubeconfig: kubeconfig, dir: dir, replies: make(chan reply), cmd: exec.CommandContext(ctx, program, childArgument, kubeconfig)}
	c.cmd.Stderr = os.Stderr
	c.cmd.Cancel = func() error { return c.in.Close() } // so that it can clean up
	c.cmd.WaitDelay = patience
	out, err := c.start()
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	go c.read(out)
	if err := c.reply(ctx); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

func (c *child) start() (out io.Reader, err error) {
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if out, err = c.cmd.StdoutPipe(); err != nil {
		return nil, err
	}
	return out, c.cmd.Start()
}

// read passes on what the child says, until it ends.
func (c *child) read(out io.Reader) {
	defer close(c.replies)
	for decoder := json.NewDecoder(out); ; {
		var r reply
		if err := decoder.Decode(&r); err != nil {
			return
		}
		c.replies <- r
	}
}

// do has the child do something and returns when it has.
func (c *child) do(ctx context.Context, r request) error {
	if err := json.NewEncoder(c.in).Encode(r); err != nil {
		return fmt.Errorf("asking the API server's process to %s: %w", r.Op, err)
	}
	if err := c.reply(ctx); err != nil {
		return fmt.Errorf("%s %d: %w", r.Op, r.Count, err)
	}
	return nil
}

func (c *child) reply(ctx context.Context) error {
	select {
	case r, ok := <-c.replies:
		if !ok {
			return errors.New("the API server's process has ended")
		}
		if r.Error != "" {
			return errors.New(r.Error)
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// close ends the child, by the end of its input, and returns when it has.
func (c *child) close() error {
	err := c.in.Close()
	if errors.Is(err, os.ErrClosed) { // because ctx has ended
		err = nil
	}
	for range c.replies { // one that nobody waited for would keep read from returning
		continue
	}
	return errors.Join(err, c.cmd.Wait(), os.RemoveAll(c.dir))
}
