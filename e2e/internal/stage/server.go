package stage

import (
	"context"
	"os"
	"path/filepath"

	"github.com/customcacheinformer/informer/e2e/apiserver"
)

// Server is an API server that can be restarted, also with its files as they were before.
type Server struct {
	*apiserver.Server // another one after each restart
	t                 T
	dir, backup       string
}

// Server starts an API server. The end of the test stops it.
func (t T) Server() *Server {
	t.Helper()
	s := &Server{t: t, dir: t.TempDir(), backup: filepath.Join(t.TempDir(), "etcd")}
	s.start()
	t.Cleanup(func() { s.Stop() })
	return s
}

func (s *Server) start() {
	s.t.Helper()
	server, err := apiserver.StartIn(context.Background(), s.dir)
	s.t.OK(err)
	s.Server = server
}

// Restart stops the API server, calls meanwhile, and starts an API server over the same files. It may not serve
// its resources at once.
func (s *Server) Restart(meanwhile func()) {
	s.t.Helper()
	s.Stop()
	meanwhile()
	s.start()
}

// BackUp copies the files of etcd. No API server may run.
func (s *Server) BackUp() { s.copy(s.files(), s.backup) }

// Restore puts the files of BackUp back. No API server may run.
func (s *Server) Restore() { s.copy(s.backup, s.files()) }

func (s *Server) files() string { return filepath.Join(s.dir, "etcd") }

func (s *Server) copy(from, to string) {
	s.t.Helper()
	s.t.OK(os.RemoveAll(to))
	s.t.OK(os.CopyFS(to, os.DirFS(from)))
}
