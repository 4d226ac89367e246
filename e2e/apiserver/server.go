// Package apiserver runs a real Kubernetes API server for custom resources,
// with a real etcd, inside the process.
//
// The server is the one that serves custom resources in every cluster: it has
// the watch cache, bookmarks, streaming lists, pagination and the conflict
// and expiry errors that a fake client lacks. It lacks the rest of a cluster:
// there are no built-in types (except those of StartWithPods), no controllers and
// no admission plugins. Namespaces need not exist before objects are created in them.
//
// Server.Expire makes the server answer requests for old resource versions with
// 410 Gone, and a Proxy breaks connections. With both, tests can put clients
// through the failures of production.
//
// Starting takes about a second, so the tests of a binary share one server,
// and each installs a kind of its own:
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
// The API server logs through klog's process-wide logger, which cannot tell its
// messages from others. Start therefore discards everything that is written to
// that logger for the rest of the process. Loggers that a program puts into a
// context or passes to klog.SetLogger are not affected. To see the logs of the
// API server and etcd, set the environment variable APISERVER_LOG to a klog
// verbosity, such as 0 or 4.
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
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/e2e/internal/etcd"
)

// Server is a running API server. Its methods may be called concurrently.
type Server struct {
	address string
	config  *rest.Config
	crds    clientset.Interface
	dynamic dynamic.Interface
	lister  listers.CustomResourceDefinitionLister
	etcd    *embed.Etcd // nil if it is another server's
	storage string      // the address of etcd
	users   users
	pods    bool // serve Pods and Secrets

	stop     sync.Once
	cleanups []func() // run by Stop, last first
}

// Start starts etcd and an API server, and blocks until the API server reports that it is
// ready. They listen only on 127.0.0.1 and on a Unix socket. The context bounds only the
// start: the server runs until Stop, which the caller must call. If Start fails, it stops
// everything that it has started before it returns.
func Start(ctx context.Context) (*Server, error) {
	return (&Server{}).startTemporarily(ctx)
}

// StartWithPods is like Start, but the server also serves Pods and Secrets in core/v1, with protobuf. Pods have
// a status of their own, and the field selector spec.nodeName. Nothing validates, schedules or runs them.
func StartWithPods(ctx context.Context) (*Server, error) {
	return (&Server{pods: true}).startTemporarily(ctx)
}

func (s *Server) startTemporarily(ctx context.Context) (*Server, error) {
	dir, err := os.MkdirTemp("", "apiserver-")
	if err != nil {
		return nil, fmt.Errorf("starting API server: %w", err)
	}
	s.onStop(func() {
		if err := os.RemoveAll(dir); err != nil {
			klog.ErrorS(err, "Files of the API server remain", "dir", dir)
		}
	})
	return s.started(ctx, dir)
}

// StartIn is like Start, but keeps the files of etcd in the directory "etcd" of dir. The files
// stay after Stop, and may exist already: a server can continue from the state in which
// another server stopped. From a copy of the files, made while no server ran, it continues
// from the time of the copy.
func StartIn(ctx context.Context, dir string) (*Server, error) {
	return (&Server{}).started(ctx, dir)
}

// StartBeside is like Start, but the server has the objects of another one, as the API servers of one
// cluster have. storage is what Storage of the other server returns, which may be in another process. A
// process has one set of feature gates, so servers that differ in them are in different processes.
// Expire does not work on it. The other server must outlive this one.
func StartBeside(ctx context.Context, storage string) (*Server, error) {
	return (&Server{storage: storage}).started(ctx, "")
}

// Storage returns the address of the server's etcd, for StartBeside.
func (s *Server) Storage() string { return s.storage }

func (s *Server) started(ctx context.Context, dir string) (*Server, error) {
	if err := s.start(ctx, dir); err != nil {
		s.Stop()
		return nil, fmt.Errorf("starting API server: %w", err)
	}
	return s, nil
}

// start starts etcd, unless it is another server's, and the API server. If it fails, Stop stops the
// parts that run.
func (s *Server) start(ctx context.Context, dir string) (err error) {
	if err := setUpLogs(); err != nil {
		return err
	}
	if s.storage == "" {
		if s.etcd, err = etcd.Start(ctx, dir, etcdLogLevel()); err != nil {
			return err
		}
		s.onStop(s.etcd.Close)
		s.storage = s.etcd.Config().ListenClientUrls[0].String()
	}

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	// This is for a start that fails; otherwise the API server closes the listener.
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
	server, err := newServer(gate, certificate, key, s.Config(), s.storage, &s.users, s.pods)
	if err != nil {
		return err
	}
	s.lister = server.Informers.Apiextensions().V1().CustomResourceDefinitions().Lister()
	return s.serve(ctx, server.GenericAPIServer, gate)
}

// serve runs the API server until Stop, and blocks until it reports that it is ready.
func (s *Server) serve(ctx context.Context, server *genericapiserver.GenericAPIServer, gate *gate) error {
	run, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	var runErr error
	go func() {
		defer close(ended)
		runErr = server.PrepareRun().RunWithContext(run)
	}()
	s.onStop(func() {
		cancel()
		// Cut the clients off: the API server would wait up to a minute for them to hang up.
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

// onStop makes Stop call f, before all functions that were registered earlier.
func (s *Server) onStop(f func()) {
	s.cleanups = append(s.cleanups, f)
}

// Config returns a new client configuration with every permission and no rate limit. Informers of its
// clients decode objects as they arrive, see informer.Transport. The caller may change it.
func (s *Server) Config() *rest.Config {
	config := rest.CopyConfig(s.config)
	config.Wrap(informer.Transport)
	return config
}

// Stop stops the API server and etcd, removes their files and returns when both are down. It
// cuts connections that are still open. Stop clients first, because they keep retrying
// otherwise. Further calls do nothing.
//
// Goroutines of the watch cache's waitUntilFreshLocked may remain. They are timers of recent
// requests, and end by themselves within three seconds.
func (s *Server) Stop() {
	s.stop.Do(func() {
		for i := len(s.cleanups) - 1; i >= 0; i-- {
			s.cleanups[i]()
		}
	})
}
