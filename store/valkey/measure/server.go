//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	client "github.com/valkey-io/valkey-go"

	"github.com/customcacheinformer/informer/internal/bulk"
)

// instance is a server in a process of its own.
type instance struct {
	addr, dir string
	version   string
	cmd       *exec.Cmd
	client    client.Client
}

// start starts a server, and waits until it answers.
func start(ctx context.Context, dir string) (*instance, error) {
	path, err := program()
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &instance{addr: l.Addr().String()}
	if err := l.Close(); err != nil {
		return nil, err
	}
	if s.dir, err = os.MkdirTemp(dir, "measure-"); err != nil {
		return nil, err
	}
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	s.cmd = exec.Command(path, "--port", port, "--bind", "127.0.0.1", "--dir", s.dir, "--save", "",
		"--appendonly", "yes", "--loglevel", "warning")
	s.cmd.Stderr = os.Stderr
	if err := s.cmd.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(s.dir))
	}
	if err := s.connect(ctx); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

// program returns the path of the server's program.
func program() (path string, err error) {
	for _, name := range []string{"valkey-server", "redis-server"} {
		if path, err = exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New("there is neither valkey-server nor redis-server: make valkey installs it")
}

func (s *instance) connect(ctx context.Context) error {
	for deadline := time.Now().Add(time.Minute); ; {
		c, err := client.NewClient(client.ClientOption{InitAddress: []string{s.addr}, DisableCache: true, ForceSingleClient: true})
		if err == nil {
			s.client = c
			info, err := s.info(ctx)
			s.version = "Redis " + info["redis_version"]
			if v := info["valkey_version"]; v != "" {
				s.version = "Valkey " + v
			}
			return err
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return fmt.Errorf("the server does not answer: %w", err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// stop kills the server and removes its files.
func (s *instance) stop() error {
	if s.client != nil {
		s.client.Close()
	}
	err := s.cmd.Process.Kill()
	_ = s.cmd.Wait() // it says that it was killed
	return errors.Join(err, os.RemoveAll(s.dir))
}

// info returns what the server says about itself.
func (s *instance) info(ctx context.Context) (map[string]string, error) {
	text, err := s.client.Do(ctx, s.client.B().Info().Build()).ToString()
	if err != nil {
		return nil, err
	}
	info := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[name] = value
		}
	}
	return info, nil
}

// run runs a child, and adds what the server did for it.
func (s *instance) run(ctx context.Context, of setup) (rows []row, err error) {
	before, err := s.info(ctx)
	if err != nil {
		return nil, err
	}
	if err := bulk.Run(childVariable, of, &rows); err != nil {
		return nil, err
	}
	after, err := s.info(ctx)
	if err != nil {
		return nil, err
	}
	value := func(info map[string]string, name string) int64 {
		n, wrong := strconv.ParseFloat(info[name], 64)
		err = errors.Join(err, wrong)
		return int64(n)
	}
	change := func(name string) int64 { return value(after, name) - value(before, name) }
	rows = append(rows, row{"server: memory", bulk.Mebibytes(value(after, "used_memory"))})
	if of.Role == cold || of.Role == use {
		rows = append(rows, row{"server: its peak", bulk.Mebibytes(value(after, "used_memory_peak"))})
	}
	if of.Role == cold || of.Role == use {
		rows = append(rows,
			row{"server: times that it waited for the disk", bulk.Thousands(int(change("aof_delayed_fsync")))},
			row{"server: times that it wrote its file again", bulk.Thousands(int(change("aof_rewrites")))})
	}
	if of.Role != use {
		rows = append(rows,
			row{"server: received", bulk.Mebibytes(change("total_net_input_bytes"))},
			row{"server: sent", bulk.Mebibytes(change("total_net_output_bytes"))},
			row{"server: CPU", fmt.Sprintf("%d s", change("used_cpu_user")+change("used_cpu_sys"))})
	}
	for i := range rows {
		rows[i].Name = of.Role + ": " + rows[i].Name
	}
	return rows, err
}
