package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"sync/atomic"
	"time"

	"github.com/customcacheinformer/informer/e2e/internal/process"
)

// child is this program in another role, in a process of its own.
type child struct {
	*process.Process
	in      io.WriteCloser
	answers *json.Decoder
}

func startChild(role, argument string) (*child, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(program, role, argument)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	started, err := process.Start(cmd)
	if err != nil {
		return nil, err
	}
	return &child{Process: started, in: in, answers: json.NewDecoder(bufio.NewReader(out))}, nil
}

// startServer starts a child that first says at which address it serves.
func startServer(role, argument string) (c *child, at address, err error) {
	if c, err = startChild(role, argument); err != nil {
		return nil, at, err
	}
	if err := c.answers.Decode(&at); err != nil {
		return nil, at, errors.Join(fmt.Errorf("%s: %w\n%s", role, err, c.Log), c.end())
	}
	return c, at, nil
}

// ask sends a line to a child and reads the answer.
func ask[T any](c *child, question string) (answer T, err error) {
	if _, err := fmt.Fprintln(c.in, question); err != nil {
		return answer, fmt.Errorf("%w\n%s", err, c.Log)
	}
	if err := c.answers.Decode(&answer); err != nil {
		return answer, fmt.Errorf("%w\n%s", err, c.Log)
	}
	return answer, nil
}

// end has the process end by itself.
func (c *child) end() error {
	_ = c.in.Close()
	select {
	case <-c.Ended():
		return nil
	case <-time.After(patience):
		c.Kill()
		return fmt.Errorf("a process does not end:\n%s", c.Log)
	}
}

// answer is the other side of ask, until the standard input ends.
func answer[T any](to func(question string) (T, error)) error {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		said, err := to(lines.Text())
		if err != nil {
			return err
		}
		if err := json.NewEncoder(os.Stdout).Encode(said); err != nil {
			return err
		}
	}
	return nil
}

// count counts the bytes that connections receive.
type count struct{ atomic.Int64 }

func (c *count) dial(ctx context.Context, network, to string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, to)
	if err != nil {
		return nil, err
	}
	return &countedConn{conn, c}, nil
}

type countedConn struct {
	net.Conn
	received *count
}

func (c *countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.received.Add(int64(n))
	return n, err
}
