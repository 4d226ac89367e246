// Package kubeapiserver runs a real kube-apiserver, with a real etcd, as a process of its own.
//
// The server has all built-in types with their validation, defaults and field selectors, RBAC,
// admission, TokenReview and SubjectAccessReview. It lacks the rest of a cluster: no controller
// manager, no scheduler and no kubelet, so Pods stay Pending, and the objects that others own stay
// when their owner is deleted. Namespaces must exist before objects are created in them.
//
// Package apiserver of module e2e starts faster, and runs inside the process, but serves only custom
// resources and simple Pods.
//
// kube-apiserver leaves goroutines when it ends, and its feature gates are variables of the process.
// So it is a program, command serve. A test builds it once, and can start several servers:
//
//	program, err := kubeapiserver.Build(ctx)
//	…
//	server, err := program.Start(ctx)
//	…
//	err = errors.Join(server.Stop(), program.Remove())
package kubeapiserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/customcacheinformer/informer/e2e/internal/process"
)

// Server is a running kube-apiserver. Its methods may be called concurrently.
type Server struct {
	dir       string
	authority *authority
	config    *rest.Config
	process   *process.Process

	stop    sync.Once
	stopErr error
}

// Start starts a server, and blocks until it reports that it is ready, which takes some seconds. It
// listens only on 127.0.0.1 and on a Unix socket. The flags are further flags of kube-apiserver, such as
// "--feature-gates=ShardedListAndWatch=true". The context bounds only the start: the server runs until
// Stop, which the caller must call. If Start fails, it stops everything that it has started.
func (p *Program) Start(ctx context.Context, flags ...string) (*Server, error) {
	dir, err := os.MkdirTemp("", "kube-apiserver-")
	if err != nil {
		return nil, fmt.Errorf("starting kube-apiserver: %w", err)
	}
	s := &Server{dir: dir}
	if err := s.start(ctx, p.file, flags); err != nil {
		err = fmt.Errorf("starting kube-apiserver: %w", err)
		if s.process != nil {
			s.process.Kill()
			err = fmt.Errorf("%w\n%s", err, s.process.Log)
		}
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return s, nil
}

func (s *Server) start(ctx context.Context, file string, flags []string) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }() // if the process does not start
	credentials, err := s.newCredentials(listener.Addr().String())
	if err != nil {
		return err
	}
	args := slices.Concat([]string{s.dir}, fixedFlags, credentials, flags)
	if err := s.run(exec.Command(file, args...), listener.(*net.TCPListener)); err != nil {
		return err
	}
	// The process has a copy. When the process ends, connections break only if this one is closed.
	if err := listener.Close(); err != nil {
		return err
	}
	return s.awaitReady(ctx)
}

// fixedFlags are the flags of kube-apiserver that every server has.
var fixedFlags = []string{
	"--authorization-mode=RBAC",
	"--allow-privileged=true",
	// This plugin refuses Pods until a controller has made a ServiceAccount in their namespace.
	"--disable-admission-plugins=ServiceAccount",
	"--service-cluster-ip-range=10.0.0.0/24",
	// The server cannot be reached at an address that may be in an EndpointSlice.
	"--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none",
}

// run starts the process, which serves on the listener.
func (s *Server) run(cmd *exec.Cmd, listener *net.TCPListener) error {
	inherited, err := listener.File()
	if err != nil {
		return err
	}
	defer func() { _ = inherited.Close() }()
	cmd.ExtraFiles = []*os.File{inherited}
	// The process ends when this pipe is closed, at the latest by the end of this process.
	if _, err := cmd.StdinPipe(); err != nil {
		return err
	}
	s.process, err = process.Start(cmd)
	return err
}

// awaitReady waits until the server reports that it is ready.
func (s *Server) awaitReady(ctx context.Context) error {
	client, err := discovery.NewDiscoveryClientForConfig(s.Config())
	if err != nil {
		return err
	}
	return wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		select {
		case <-s.process.Ended():
			return false, errors.New("the process has exited")
		default:
			return client.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error() == nil, nil
		}
	})
}

// Config returns a new client configuration of an administrator, without a rate limit. It has a bearer
// token. The caller may change it.
func (s *Server) Config() *rest.Config { return rest.CopyConfig(s.config) }

// Stop kills the server, removes its files, and returns when the process has exited. Stop clients
// first, because they keep retrying otherwise. Stop returns an error, with the log, if the server had
// ended before. Further calls return the same.
func (s *Server) Stop() error {
	s.stop.Do(func() {
		select {
		case <-s.process.Ended():
			s.stopErr = fmt.Errorf("kube-apiserver exited before Stop:\n%s", s.process.Log)
		default:
			s.process.Kill()
		}
		s.stopErr = errors.Join(s.stopErr, os.RemoveAll(s.dir))
	})
	return s.stopErr
}
