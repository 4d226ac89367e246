package process

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// Child is this program in another role, in a process of its own.
type Child struct {
	*Process
	Answers *json.Decoder // of the process

	in io.WriteCloser
}

// Roles are the roles that a program has besides that of main, by name.
type Roles map[string]func(argument string) error

// Play ends the process after it has played its role, if StartChild has started the process.
func (r Roles) Play() {
	if len(os.Args) == 3 {
		if run := r[os.Args[1]]; run != nil {
			Exit(run(os.Args[2]))
		}
	}
}

// Exit ends the process. It prints err and exits with 1 unless err is nil.
func Exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, os.Args[0]+":", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// StartChild starts this program in another role.
func StartChild(role, argument string) (*Child, error) {
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
	started, err := Start(cmd)
	if err != nil {
		return nil, err
	}
	return &Child{Process: started, Answers: json.NewDecoder(bufio.NewReader(out)), in: in}, nil
}

// Ask sends a line to a child and reads the answer.
func Ask[T any](c *Child, question string) (answer T, err error) {
	if _, err := fmt.Fprintln(c.in, question); err != nil {
		return answer, fmt.Errorf("%w\n%s", err, c.Log)
	}
	if err := c.Answers.Decode(&answer); err != nil {
		return answer, fmt.Errorf("%w\n%s", err, c.Log)
	}
	return answer, nil
}

// Answer is the other side of Ask, until the standard input ends.
func Answer[T any](to func(question string) (T, error)) error {
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

// End has the child end by itself, and kills it after a time.
func (c *Child) End(patience time.Duration) error {
	_ = c.in.Close()
	select {
	case <-c.Ended():
		return nil
	case <-time.After(patience):
		c.Kill()
		return fmt.Errorf("a process does not end:\n%s", c.Log)
	}
}

// Poll waits until there returns true, but no longer than patience.
func Poll(ctx context.Context, patience time.Duration, there func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errors.New("that takes too long"))
	defer cancel()
	for {
		if ok, err := there(); ok || err != nil {
			return err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
