package kubeapiserver

import (
	"net"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/keyutil"
)

// newCredentials sets the authority and the administrator's configuration for a server at address. It
// writes the files that the server needs into s.dir, and returns the flags that name them.
func (s *Server) newCredentials(address string) (flags []string, err error) {
	if s.authority, err = newAuthority(); err != nil {
		return nil, err
	}
	certificate, key, err := s.authority.serving(net.IPv4(127, 0, 0, 1))
	if err != nil {
		return nil, err
	}
	accountKey, err := keyutil.MakeEllipticPrivateKeyPEM()
	if err != nil {
		return nil, err
	}
	s.config = &rest.Config{
		Host:            "https://" + address,
		BearerToken:     string(uuid.NewUUID()),
		TLSClientConfig: rest.TLSClientConfig{CAData: s.authority.pem},
		QPS:             -1,
	}
	tokens := []byte(s.config.BearerToken + ",admin,admin," + user.SystemPrivilegedGroup + "\n")
	for _, file := range []struct {
		name    string
		content []byte
		flags   []string
	}{
		{"tls.crt", certificate, []string{"--tls-cert-file"}},
		{"tls.key", key, []string{"--tls-private-key-file"}},
		{"ca.crt", s.authority.pem, []string{"--client-ca-file"}},
		{"tokens.csv", tokens, []string{"--token-auth-file"}},
		{"accounts.key", accountKey, []string{"--service-account-key-file", "--service-account-signing-key-file"}},
	} {
		path := filepath.Join(s.dir, file.name)
		if err := os.WriteFile(path, file.content, 0o600); err != nil {
			return nil, err
		}
		for _, flag := range file.flags {
			flags = append(flags, flag+"="+path)
		}
	}
	return append(flags, "--service-account-issuer=https://kubernetes.default.svc"), nil
}
