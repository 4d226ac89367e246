package kubeapiserver

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"math"
	"math/big"
	"net"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// authority signs the certificates of the server and of its clients.
type authority struct {
	certificate *x509.Certificate
	key         crypto.Signer
	pem         []byte // the certificate
}

func newAuthority() (*authority, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	certificate, err := cert.NewSelfSignedCACert(cert.Config{CommonName: "kubernetes"}, key)
	if err != nil {
		return nil, err
	}
	pem, err := cert.EncodeCertificates(certificate)
	return &authority{certificate, key, pem}, err
}

// serving returns a certificate for a server at ip, and its key, in PEM.
func (a *authority) serving(ip net.IP) (certificate, key []byte, err error) {
	return a.sign(&x509.Certificate{
		Subject:     pkix.Name{CommonName: "kube-apiserver"},
		IPAddresses: []net.IP{ip},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
}

// client returns a certificate for a user in groups, and its key, in PEM.
func (a *authority) client(user string, groups []string) (certificate, key []byte, err error) {
	return a.sign(&x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

func (a *authority) sign(template *x509.Certificate) (certificate, key []byte, err error) {
	signer, err := newKey()
	if err != nil {
		return nil, nil, err
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(math.MaxInt64)); err != nil {
		return nil, nil, err
	}
	template.NotBefore, template.NotAfter = a.certificate.NotBefore, time.Now().Add(24*time.Hour)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, signer.Public(), a.key)
	if err != nil {
		return nil, nil, err
	}
	signed, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, nil, err
	}
	if certificate, err = cert.EncodeCertificates(signed); err != nil {
		return nil, nil, err
	}
	key, err = keyutil.MarshalPrivateKeyToPEM(signer)
	return certificate, key, err
}

func newKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }
