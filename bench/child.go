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

// childArgument is the first argument of the process that runs the API server. The second
// argument is the path where it writes the kubeconfig.
const childArgument = "api-server"

// These are the operations that the child can perform.
const (
	opCreate = "create" // creates Count objects
	opUpdate = "update" // makes Count updates
)

// request is a line sent to the child. The child answers each request with a reply. Its first
// reply, before any request, says that it is ready.
type request struct {
	Op    string
	Count int
}

type reply struct{ Error string }

// child is an API server in a separate process, which runs this same program.
type child struct {
	kubeconfig string
	dir        string
	cmd        *exec.Cmd
	in         io.WriteCloser
	replies    chan reply // closed when no more replies will come
}

// patience is the time that the child gets to clean up after ctx has ended.
const patience = time.Minute

// startChild starts an API server and returns when it is ready. The child ends when ctx ends.
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
	c.cmd.Cancel = func() error { return c.in.Close() } // the end of its input lets the child clean up
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

// read passes on the child's replies until the child ends.
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

// do sends a request to the child and waits for its reply.
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

// close closes the child's input, which ends the child, and waits until it has ended.
func (c *child) close() error {
	err := c.in.Close()
	if errors.Is(err, os.ErrClosed) { // Cancel has closed it, because ctx has ended
		err = nil
	}
	for range c.replies { // an unread reply would keep read from returning
		continue
	}
	return errors.Join(err, c.cmd.Wait(), os.RemoveAll(c.dir))
}
