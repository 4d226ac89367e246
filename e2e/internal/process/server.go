package process

import (
	"context"
	"io"
	"os"

	"k8s.io/client-go/rest"

	"github.com/customcacheinformer/informer/e2e/apiserver"
	"github.com/customcacheinformer/informer/internal/lab"
)

// Address is how another process reaches a server.
type Address struct {
	Host, Token string
	CA          []byte
}

// AddressOf returns the address in a client configuration.
func AddressOf(config *rest.Config) Address {
	return Address{config.Host, config.BearerToken, config.CAData}
}

// Config returns a client configuration for JSON, which is all that a server of custom resources has.
func (a Address) Config() *rest.Config {
	return &rest.Config{
		Host: a.Host, BearerToken: a.Token, TLSClientConfig: rest.TLSClientConfig{CAData: a.CA}, QPS: -1,
		ContentConfig: rest.ContentConfig{ContentType: "application/json"},
	}
}

// Serve sends the parent the address of a server of this process, and returns when the parent ends the input.
func Serve(config *rest.Config) error {
	if err := lab.Tell(AddressOf(config)); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// ServeBeside is the role of an API server beside another one, whose storage it has.
func ServeBeside(storage string) error {
	server, err := apiserver.StartBeside(context.Background(), storage)
	if err != nil {
		return err
	}
	defer server.Stop()
	return Serve(server.Config())
}

// StartServer starts this program in a role that ends with Serve. The caller must end it.
func StartServer(ctx context.Context, role string, argument any) (*lab.Child, *rest.Config, error) {
	c, err := lab.StartChild(ctx, role, argument)
	if err != nil {
		return nil, nil, err
	}
	var at Address
	if err := c.Hear(&at); err != nil {
		return nil, nil, err
	}
	return c, at.Config(), nil
}
