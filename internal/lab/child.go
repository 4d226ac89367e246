package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"time"
)

// Roles are the functions that a program runs in child processes, by name.
type Roles map[string]Role

// Role is the main function of a child process. It gets the argument of StartChild as JSON.
type Role func(argument []byte) error

// RoleOf returns a role with an argument of type A. Most roles end with a call of Answer.
func RoleOf[A any](run func(A) error) Role {
	return func(text []byte) error {
		var argument A
		if err := json.Unmarshal(text, &argument); err != nil {
			return err
		}
		return run(argument)
	}
}

// Once returns a role for Measure. It calls measure once, and sends the result to the parent.
func Once[A, R any](measure func(A) (R, error)) Role {
	return RoleOf(func(argument A) error {
		go func() { // the child must not outlive its parent
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(0)
		}()
		result, err := measure(argument)
		if err != nil {
			return err
		}
		return Tell(result)
	})
}

// Play runs the role of this process if it is a child, and ends the process. Otherwise it does nothing.
// TestMain of a program must call it too.
func (r Roles) Play() {
	if len(os.Args) == 3 && r[os.Args[1]] != nil {
		signal.Ignore(os.Interrupt) // the terminal sends it to the parent, too
		exit(r[os.Args[1]]([]byte(os.Args[2])))
	}
}

// Child is a child process that answers questions. Errors contain its standard error.
type Child struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	answers *json.Decoder
	log     bytes.Buffer // complete when the process has exited
	ended   bool
}

// patience is how long a child may take to end.
const patience = time.Minute

// StartChild starts this program in a role. argument is passed as JSON. The child ends when its input
// ends, which is closed at the end of ctx. The caller must call End.
func StartChild(ctx context.Context, role string, argument any) (*Child, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(argument)
	if err != nil {
		return nil, err
	}
	return StartCommand(exec.CommandContext(ctx, program, role, string(text)))
}

// StartCommand starts another program, which must print its answers as JSON and end when its input ends.
// cmd must come from exec.CommandContext. The caller must call End.
func StartCommand(cmd *exec.Cmd) (*Child, error) {
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c := &Child{cmd: cmd, in: in, answers: json.NewDecoder(out)}
	cmd.Stderr, cmd.Cancel, cmd.WaitDelay = &c.log, in.Close, patience
	return c, cmd.Start()
}

// Ask sends a question, and waits for the answer, which it stores in the value that answer points to.
func (c *Child) Ask(question, answer any) error {
	if err := json.NewEncoder(c.in).Encode(question); err != nil {
		return c.failed(err)
	}
	return c.Hear(answer)
}

// Hear waits for the next answer and stores it in the value that answer points to.
func (c *Child) Hear(answer any) error {
	if err := c.answers.Decode(answer); err != nil {
		return c.failed(err)
	}
	return nil
}

func (c *Child) failed(err error) error {
	if ended := c.End(); ended != nil {
		return ended // it has the reason
	}
	return fmt.Errorf("the child process exited: %w", err)
}

// End closes the input of the child and waits until it has exited. After a minute it kills the child. End
// returns the error of the child, unless it was returned before.
func (c *Child) End() error {
	if c.ended {
		return nil
	}
	c.ended = true
	_ = c.in.Close()
	stuck := time.AfterFunc(patience, func() { _ = c.cmd.Process.Kill() })
	defer stuck.Stop()
	if err := c.cmd.Wait(); err != nil {
		return fmt.Errorf("the child process: %w\n%s", err, c.log.String())
	}
	return nil
}

// Measure starts this program in a role of Once, waits until it has exited, and stores its result in the
// value that result points to.
func Measure(ctx context.Context, role string, argument, result any) error {
	c, err := StartChild(ctx, role, argument)
	if err != nil {
		return err
	}
	return errors.Join(c.Hear(result), c.End())
}

// Tell sends an answer to the parent.
func Tell(answer any) error { return json.NewEncoder(os.Stdout).Encode(answer) }

// Answer calls answer for each question of the parent, and sends the results, until the input ends. It
// stops at the first error and returns it.
func Answer[Q, A any](answer func(Q) (A, error)) error {
	for in := json.NewDecoder(os.Stdin); ; {
		var question Q
		if err := in.Decode(&question); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		a, err := answer(question)
		if err == nil {
			err = Tell(a)
		}
		if err != nil {
			return err
		}
	}
}
