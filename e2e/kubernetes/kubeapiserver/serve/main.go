// Command serve is an etcd and a kube-apiserver in one process. Package kubeapiserver starts it.
//
// Its arguments are the directory for etcd's files, and then flags of kube-apiserver. It serves on a
// socket that it inherits as file descriptor 3, which listens already. So the process that starts it knows the
// address, and no other process can take the port first. It ends when its standard input does, so that
// it does not outlive a test that is killed.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"

	"github.com/spf13/pflag"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"

	"github.com/customcacheinformer/informer/e2e/internal/etcd"
)

func main() {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	log.Fatal(serve(context.Background(), os.Args[1], os.Args[2:]))
}

// serve returns only an error.
func serve(ctx context.Context, dir string, flags []string) error {
	inherited := os.NewFile(3, "listener")
	listener, err := net.FileListener(inherited)
	if err != nil {
		return fmt.Errorf("file descriptor 3: %w", err)
	}
	if err := inherited.Close(); err != nil {
		return err
	}
	storage, err := etcd.Start(ctx, dir, "error")
	if err != nil {
		return err
	}
	flags = append(flags, "--etcd-servers="+storage.Config().ListenClientUrls[0].String())
	completed, err := newOptions(ctx, listener, flags)
	if err != nil {
		return err
	}
	return errors.Join(app.Run(ctx, completed), errors.New("kube-apiserver has exited"))
}

// newOptions returns the options that the flags stand for. The command of kube-apiserver does the same,
// except that it opens its listener itself.
func newOptions(ctx context.Context, listener net.Listener, flags []string) (completed options.CompletedOptions, err error) {
	opts := options.NewServerRunOptions()
	known := pflag.NewFlagSet("kube-apiserver", pflag.ContinueOnError)
	for _, set := range opts.Flags().FlagSets {
		known.AddFlagSet(set)
	}
	if err := known.Parse(flags); err != nil {
		return completed, err
	}
	if err := opts.GenericServerRunOptions.ComponentGlobalsRegistry.Set(); err != nil {
		return completed, err
	}
	if err := logsapi.ValidateAndApply(opts.Logs, utilfeature.DefaultFeatureGate); err != nil {
		return completed, err
	}
	opts.SecureServing.Listener = listener
	opts.SecureServing.BindPort = listener.Addr().(*net.TCPAddr).Port
	if completed, err = opts.Complete(ctx); err != nil {
		return completed, err
	}
	return completed, utilerrors.NewAggregate(completed.Validate())
}
