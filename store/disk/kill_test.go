//go:build unix

package disk_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/customcacheinformer/informer/internal/sample"
	"github.com/customcacheinformer/informer/store/disk"
)

func init() {
	helpers["write"] = writeUntilKilled
	helpers["hold"] = holdUntilKilled
	helpers["end"] = func([]string) {}
}

// helper starts this program again as one of the helpers. The caller must read the returned
// scanner until the process ends.
func helper(t *testing.T, name string, args ...string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	program, err := os.Executable()
	must(t, err)
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), helperVariable+"="+name)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must(t, err)
	_, err = cmd.StdinPipe() // stays open as long as the test
	must(t, err)
	must(t, cmd.Start())
	return cmd, bufio.NewScanner(out)
}

// wait waits for a process that ends by SIGKILL.
func wait(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("the process has ended otherwise than by SIGKILL: %v", err)
	}
}

// at returns the history after that many steps.
func at(step int) *history {
	h := newHistory()
	for h.step < step {
		h.next()
	}
	return h
}

// writeUntilKilled is a process that continues the history of a file. Its arguments are the path
// and four numbers: the durability, the current step, the least number of further steps, and the
// time from the beginning of the last of them until it kills itself. It prints when it begins a
// step, and when the step is done.
func writeUntilKilled(args []string) {
	var durability, step, more int
	var after time.Duration
	if _, err := fmt.Sscan(args[1], &durability, &step, &more, &after); err != nil {
		log.Fatal(err)
	}
	h, last := at(step), step+more
	s, err := disk.Open(args[0], sample.ConfigMap("", ""), identified(disk.Options{Durability: disk.Durability(durability), Indexers: versionIndexer}))
	if err != nil {
		log.Fatal(err)
	}
	for {
		changes := h.next()
		if h.step == last {
			go func() {
				for begun := time.Now(); time.Since(begun) < after; {
					continue
				}
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			}()
		}
		fmt.Println(begins, h.step)
		if err := s.Apply(context.Background(), changes, h.bookmark()); err != nil {
			log.Fatal(err)
		}
		fmt.Println(done, h.step)
	}
}

const begins, done = "begins", "done"

func TestAKilledProcessLeavesTheStateBeforeOrAfter(t *testing.T) {
	rounds := often(8, 40)
	for name, durability := range map[string]disk.Durability{"power loss": disk.SurvivePowerLoss, "process": disk.SurviveProcess} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(uint64(durability), 8))
			path, step, round, inside, after := newPath(t), 0, 0, 0, 0
			for ; round < rounds || inside == 0 && round < 20*rounds; round++ {
				cmd, out := helper(t, "write", path, fmt.Sprint(int(durability), step, 1+random.IntN(12), random.IntN(int(6*time.Millisecond))))
				amid := false
				for out.Scan() {
					var what string
					var n int
					if _, err := fmt.Sscan(out.Text(), &what, &n); err != nil {
						t.Fatal(err)
					}
					if amid = what == begins; !amid {
						step = n
					}
				}
				wait(t, cmd)
				s := open(t, path, sample.ConfigMap("", ""), disk.Options{Durability: durability, Indexers: versionIndexer})
				now := contents(t, s)
				must(t, s.Close())
				if amid {
					inside++
				}
				switch before := at(step).contents(); {
				case slices.Equal(now, before):
				case amid && slices.Equal(now, at(step+1).contents()):
					step, after = step+1, after+1
				default:
					t.Fatalf("after step %d and a kill: %s", step, cut(cmp.Diff(before, now)))
				}
			}
			t.Logf("%d steps; %d of %d kills came amid a write, of which %d had taken effect", step, inside, round, after)
			if inside == 0 {
				t.Error("no kill came amid a write")
			}
		})
	}
}

// holdUntilKilled is a process that has a file open.
func holdUntilKilled(args []string) {
	s, err := disk.Open(args[0], sample.ConfigMap("", ""), identified(disk.Options{}))
	if err == nil {
		err = add(s, newSized("a", 1, 1))
	}
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("open")
	_, _ = io.Copy(io.Discard, os.Stdin) // until the test has ended
}

func TestAFileThatAnotherProcessHasIsNotOpened(t *testing.T) {
	path := newPath(t)
	cmd, out := helper(t, "hold", path)
	if !out.Scan() {
		t.Fatal("the other process has not opened the file")
	}
	if _, err := tryOpen(t, path, sample.ConfigMap("", ""), disk.Options{}); !errors.Is(err, disk.ErrInUse) || !strings.Contains(err.Error(), path) {
		t.Errorf("Open: %v, want that it is in use", err)
	}
	must(t, cmd.Process.Kill())
	wait(t, cmd)
	if s := open(t, path, sample.ConfigMap("", ""), disk.Options{}); len(stored(t, s)) != 1 {
		t.Error("what the other process has stored is not there")
	}
}

// For a moment, a starting process has copies of all open files, and of their locks.
func TestAFileIsOpenedAgainWhileProcessesAreStarted(t *testing.T) {
	path, opened := newPath(t), make(chan error, 1)
	go func() {
		for range often(300, 300) {
			s, err := disk.Open(path, sample.ConfigMap("", ""), identified(disk.Options{}))
			if err == nil {
				err = s.Close()
			}
			if err != nil {
				opened <- err
				return
			}
		}
		opened <- nil
	}()
	for {
		select {
		case err := <-opened:
			noError(t, err)
			return
		default:
			cmd, _ := helper(t, "end")
			must(t, cmd.Wait())
		}
	}
}
