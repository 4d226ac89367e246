package front

import (
	"net"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
)

// Serving returns the options of a relay that has the certificate and is reached through listener.
func Serving(listener net.Listener, certificate, key []byte) (*genericoptions.SecureServingOptionsWithLoopback, error) {
	serving, err := dynamiccertificates.NewStaticCertKeyContent("serving", certificate, key)
	if err != nil {
		return nil, err
	}
	return (&genericoptions.SecureServingOptions{
		Listener: listener, BindAddress: net.IPv4(127, 0, 0, 1), ServerCert: genericoptions.GeneratableKeyCert{GeneratedCert: serving},
	}).WithLoopback(), nil
}

// Local returns the options of a relay on a free port of this machine, with a certificate of its own, and the configuration of its
// clients.
func Local() (*genericoptions.SecureServingOptionsWithLoopback, *rest.Config, error) {
	certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	if err != nil {
		return nil, nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	serving, err := Serving(listener, certificate, key)
	return serving, &rest.Config{
		Host: "https://" + listener.Addr().String(), QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAData: certificate},
	}, err
}
