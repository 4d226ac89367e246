// Package etcd runs a real etcd inside the process, for API servers of tests.
package etcd

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"

	"go.etcd.io/etcd/server/v3/embed"
)

// Start starts an etcd with a single member, and blocks until it serves. The data is in the
// directory "etcd" of dir, and the socket in dir, too. logLevel is a level of etcd's own logger,
// which writes to standard error. The caller must call Close.
func Start(ctx context.Context, dir, logLevel string) (*embed.Etcd, error) {
	socket := []url.URL{{Scheme: "unix", Path: filepath.Join(dir, "etcd.sock")}}
	config := embed.NewConfig()
	config.Dir = filepath.Join(dir, "etcd")
	config.ListenClientUrls, config.AdvertiseClientUrls = socket, socket
	// etcd requires a peer address even for a member without peers.
	config.ListenPeerUrls, config.AdvertisePeerUrls = nil, socket
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	config.EnableGRPCGateway = false
	// The data does not outlive the process, so there is no point in waiting for the disk.
	config.UnsafeNoFsync = true
	config.LogLevel = logLevel

	etcd, err := embed.StartEtcd(config)
	if err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	select {
	case <-etcd.Server.ReadyNotify():
		return etcd, nil
	case err = <-etcd.Err():
	case <-ctx.Done():
		err = ctx.Err()
	}
	etcd.Close()
	return nil, fmt.Errorf("etcd: %w", err)
}
