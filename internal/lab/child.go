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

// Roles are what a program does in child processes, by name.
type Roles map[string]Role

// Role is the main function of a child. It gets the argument of StartChild as JSON.
type Role func(argument []byte) error

// RoleOf returns a role with an argument of type A. Most of them end with Answer.
func RoleOf[A any](run func(A) error) Role {
	return func(text []byte) error {
		var argument A
		if err := json.Unmarshal(text, &argument); err != nil {
			return err
		}
		return run(argument)
	}
}

// Once returns the role of a child of Measure.
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

// Play plays the role of this process and ends it, if it is a child. TestMain of a program calls it, too.
func (r Roles) Play() {
	if len(os.Args) == 3 && r[os.Args[1]] != nil {
		signal.Ignore(os.Interrupt) // the terminal sends it to the parent, too
		exit(r[os.Args[1]]([]byte(os.Args[2])))
	}
}

// Child is a process that answers questions. Its standard error appears in errors.
type Child struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	answers *json.Decoder
	log     bytes.Buffer // complete when the process has ended
	ended   bool
}

// patience is how long a child may take to end.
const patience = time.Minute

// StartChild starts this program in a role. The child ends when its input does, as it does when ctx has ended.
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

// StartCommand starts another program, which must end with its input and print its answers. cmd must be of
// exec.CommandContext.
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

// Ask sends a question, and reads the answer into what answer points to.
func (c *Child) Ask(question, answer any) error {
	if err := json.NewEncoder(c.in).Encode(question); err != nil {
		return c.failed(err)
	}
	return c.Hear(answer)
}

// Hear reads the next answer.
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
	return fmt.Errorf("the child process has ended: %w", err)
}

// End ends the child, and returns its error if nothing has returned it before.
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

// Measure starts this program in a role that Once has made, and reads its result.
func Measure(ctx context.Context, role string, argument, result any) error {
	c, err := StartChild(ctx, role, argument)
	if err != nil {
		return err
	}
	return errors.Join(c.Hear(result), c.End())
}

// Tell sends the parent an answer.
func Tell(answer any) error { return json.NewEncoder(os.Stdout).Encode(answer) }

// Answer answers the questions of the parent, until the input ends.
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
