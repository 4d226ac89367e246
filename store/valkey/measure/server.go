//go:build linux

package main

import (
	"cmp"
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

	"github.com/customcacheinformer/informer/internal/lab"
)

// instance is a server in a process of its own.
type instance struct {
	addr, dir string
	version   string
	cmd       *exec.Cmd
	client    client.Client
}

// start starts a server, and waits until it answers.
func start(ctx context.Context) (*instance, error) {
	path, err := exec.LookPath("valkey-server")
	if err != nil {
		if path, err = exec.LookPath("redis-server"); err != nil {
			return nil, errors.New("there is neither valkey-server nor redis-server: make valkey installs it")
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &instance{addr: l.Addr().String()}
	if err := l.Close(); err != nil {
		return nil, err
	}
	if s.dir, err = os.MkdirTemp("", "measure-"); err != nil {
		return nil, err
	}
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	s.cmd = exec.Command(path, "--port", port, "--bind", "127.0.0.1", "--dir", s.dir, "--save", "",
		"--appendonly", "yes", "--loglevel", "warning")
	s.cmd.Stderr = os.Stderr
	if err := s.cmd.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(s.dir))
	}
	err = lab.Poll(ctx, 10*time.Millisecond, func() (answers bool, _ error) {
		s.client, err = connect(s.addr)
		return err == nil, nil
	})
	var info map[string]string
	if err == nil {
		info, err = s.info(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.stop())
	}
	if s.version = "Redis " + info["redis_version"]; info["valkey_version"] != "" {
		s.version = "Valkey " + info["valkey_version"]
	}
	return s, nil
}

// stop kills the server and removes its files.
func (s *instance) stop() error {
	if s.client != nil {
		s.client.Close()
	}
	err := s.cmd.Process.Kill()
	_ = s.cmd.Wait() // it returns that it was killed
	return errors.Join(err, os.RemoveAll(s.dir))
}

// info returns the answer to INFO.
func (s *instance) info(ctx context.Context) (map[string]string, error) {
	text, err := s.client.Do(ctx, s.client.B().Info().Build()).ToString()
	info := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[name] = value
		}
	}
	return info, err
}

// run runs a child, and adds what the server did for it.
func (s *instance) run(ctx context.Context, of setup) (rows []row, err error) {
	before, err := s.info(ctx)
	if err != nil {
		return nil, err
	}
	if err := lab.Measure(ctx, "store", of, &rows); err != nil {
		return nil, err
	}
	after, err := s.info(ctx)
	if err != nil {
		return nil, err
	}
	value := func(info map[string]string, name string) float64 {
		n, wrong := strconv.ParseFloat(info[name], 64)
		err = cmp.Or(err, wrong)
		return n
	}
	change := func(name string) float64 { return value(after, name) - value(before, name) }
	rows = append(rows, row{"server: memory", lab.Mebibytes(value(after, "used_memory"))})
	if of.Step == cold || of.Step == use {
		rows = append(rows, row{"server: its peak", lab.Mebibytes(value(after, "used_memory_peak"))},
			row{"server: times that it waited for the disk", lab.Thousands(int(change("aof_delayed_fsync")))},
			row{"server: times that it wrote its file again", lab.Thousands(int(change("aof_rewrites")))})
	}
	if of.Step != use {
		rows = append(rows,
			row{"server: received", lab.Mebibytes(change("total_net_input_bytes"))},
			row{"server: sent", lab.Mebibytes(change("total_net_output_bytes"))},
			row{"server: CPU", fmt.Sprintf("%.0f s", change("used_cpu_user")+change("used_cpu_sys"))})
	}
	for i := range rows {
		rows[i].Name = of.Step + ": " + rows[i].Name
	}
	return rows, err
}
