package front

import (
	"net"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	genericoptions "k8s.io/apiserver/pkg/server/options"
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
