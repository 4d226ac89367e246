// Package apiserver runs a real Kubernetes API server for custom resources,
// with a real etcd, inside the process.
//
// The server is the one that serves custom resources in every cluster: it has
// the watch cache, bookmarks, streaming lists, pagination and the conflict
// and expiry errors that a fake client lacks. What it does not have is the
// rest of a cluster: no built-in types such as Pods, no controllers, no
// admission plugins. Namespaces need not exist before objects are created in
// them.
//
// Server.Expire makes old resource versions answer 410 Gone, and a Proxy breaks
// connections, so that clients can be put through what happens in production.
//
// Starting takes about a second, so tests share one server per test binary
// and install a kind of their own each:
//
//	var server *apiserver.Server
//
//	func TestMain(m *testing.M) {
//		var err error
//		if server, err = apiserver.Start(context.Background()); err != nil {
//			log.Fatal(err)
//		}
//		code := m.Run()
//		server.Stop()
//		os.Exit(code)
//	}
//
// # Logs
//
// The API server logs through klog's process-wide logger, which offers no way
// to tell its messages from others. Start therefore discards everything
// written to that logger for the rest of the process; loggers that a program
// puts in a context or hands to klog.SetLogger are not affected. Set the
// environment variable APISERVER_LOG to a klog verbosity, such as 0 or 4, to
// see the logs of the API server and etcd instead.
package apiserver

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	listers "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"
)

// Server is a running API server. Its methods may be called concurrently.
type Server struct {
	address string
	config  *rest.Config
	crds    clientset.Interface
	dynamic dynamic.Interface
	lister  listers.CustomResourceDefinitionLister
	etcd    *embed.Etcd

	stop     sync.Once
	cleanups []func() // run by Stop, last first
}

// Start starts etcd and an API server that listen on 127.0.0.1 and a Unix
// socket only, and blocks until the API server reports that it is ready. The
// context bounds the start alone: the server runs until Stop, which the caller
// must call. On failure everything that was started is down again when Start
// returns.
func Start(ctx context.Context) (*Server, error) {
	dir, err := os.MkdirTemp("", "apiserver-")
	if err != nil {
		return nil, fmt.Errorf("starting API server: %w", err)
	}
	s := &Server{}
	s.onStop(func() {
		if err := os.RemoveAll(dir); err != nil {
			klog.ErrorS(err, "Files of the API server remain", "dir", dir)
		}
	})
	return s.started(ctx, dir)
}

// StartIn is Start with the files of etcd in the directory "etcd" of dir, which
// stay after Stop and may be there already: so a server goes on where another has
// stopped or, from a copy that was made while none ran, where one once was.
func StartIn(ctx context.Context, dir string) (*Server, error) {
	return (&Server{}).started(ctx, dir)
}

func (s *Server) started(ctx context.Context, dir string) (*Server, error) {
	if err := s.start(ctx, dir); err != nil {
		s.Stop()
		return nil, fmt.Errorf("starting API server: %w", err)
	}
	return s, nil
}

func (s *Server) start(ctx context.Context, dir string) (err error) {
	if err := setUpLogs(); err != nil {
		return err
	}
	if s.etcd, err = startEtcd(ctx, dir); err != nil {
		return err
	}
	s.onStop(s.etcd.Close)

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	// Closed by the API server, if it comes to that.
	s.onStop(func() { _ = listener.Close() })
	s.address = listener.Addr().String()
	certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	if err != nil {
		return err
	}
	s.config = &rest.Config{
		Host:            "https://" + s.address,
		BearerToken:     string(uuid.NewUUID()),
		TLSClientConfig: rest.TLSClientConfig{CAData: certificate},
		QPS:             -1,
	}
	if s.crds, err = clientset.NewForConfig(s.Config()); err != nil {
		return err
	}
	if s.dynamic, err = dynamic.NewForConfig(s.Config()); err != nil {
		return err
	}

	gate := newGate(listener)
	server, err := newServer(gate, certificate, key, s.Config(), s.etcd.Config().ListenClientUrls[0].String())
	if err != nil {
		return err
	}
	s.lister = server.Informers.Apiextensions().V1().CustomResourceDefinitions().Lister()

	run, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	var runErr error
	go func() {
		defer close(ended)
		runErr = server.GenericAPIServer.PrepareRun().RunWithContext(run)
	}()
	s.onStop(func() {
		cancel()
		// The API server waits up to a minute for clients to hang up.
		gate.refuse()
		gate.cut()
		<-ended
		if runErr != nil {
			klog.ErrorS(runErr, "API server failed")
		}
	})

	probe := s.crds.Discovery().RESTClient()
	return wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		select {
		case <-ended:
			return false, fmt.Errorf("API server ended early: %w", runErr)
		default:
			return probe.Get().AbsPath("/readyz").Do(ctx).Error() == nil, nil
		}
	})
}

// onStop has Stop call f, before anything that was registered earlier.
func (s *Server) onStop(f func()) {
	s.cleanups = append(s.cleanups, f)
}

// Config returns a new client configuration with every permission and no rate
// limit, which the caller may change.
func (s *Server) Config() *rest.Config {
	return rest.CopyConfig(s.config)
}

// Stop stops the API server and etcd, removes their files and returns when all
// is down. Connections that are still open are cut; clients are best stopped
// before, as they go on retrying otherwise. Further calls do nothing.
//
// What may be left are goroutines of the watch cache's waitUntilFreshLocked,
// timers for recent requests that end on their own within three seconds.
func (s *Server) Stop() {
	s.stop.Do(func() {
		for i := len(s.cleanups) - 1; i >= 0; i-- {
			s.cleanups[i]()
		}
	})
}
