package clusters

import (
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/tools/clientcmd/api/latest"
)

// MaxSize is the largest size of a kubeconfig that [Config] accepts, in bytes. A kubeconfig with a single context has
// about 6 KiB. The limit bounds memory: a Secret may have 1 MiB, and a parsed kubeconfig takes several times its size.
const MaxSize = 256 << 10

// Allow permits parts of kubeconfigs that [Config] would otherwise refuse. The zero value permits nothing. Set a field
// only if you trust all users who may write the kubeconfigs as much as the program itself.
type Allow struct {
	Exec         bool // exec: a program that this process runs, without standard input. If the program hangs, changed kubeconfigs may take effect late.
	AuthProvider bool // auth-provider: a plugin that is linked into this program.
	Files        bool // the fields that are paths. client-go reads the files when it connects, and when they change.
	Proxy        bool // proxy-url, with http, https or socks5.
	Insecure     bool // insecure-skip-tls-verify.
	HTTP         bool // servers without TLS.
	Impersonate  bool // as, as-uid, as-groups and as-user-extra.
}

// RefusedError is the reason why a kubeconfig is not used. It contains no value from the kubeconfig.
type RefusedError struct {
	Field  string // such as "users[].user.exec"; "" if the reason is not about one field
	Reason string // such as "is not an absolute path"
}

// Error returns a message with the field and the reason.
func (e *RefusedError) Error() string {
	return strings.Join(slices.DeleteFunc([]string{"kubeconfig", e.Field, e.Reason}, func(s string) bool { return s == "" }), ": ")
}

// Config returns the configuration for the current-context of a kubeconfig, or a [*RefusedError]. It does not block, and
// reads neither files nor the environment. It sets no rate limit, so client-go's default of 5 requests a second applies.
func Config(kubeconfig []byte, allow Allow) (*rest.Config, error) {
	if len(kubeconfig) > MaxSize {
		return nil, &RefusedError{"", fmt.Sprintf("has more than %d KiB", MaxSize>>10)}
	}
	// This is clientcmd.Load. Package clientcmd itself would link flags and prompts into each program.
	decoded, _, err := latest.Codec.Decode(kubeconfig, &schema.GroupVersionKind{Version: latest.Version, Kind: "Config"}, clientcmdapi.NewConfig())
	file, ok := decoded.(*clientcmdapi.Config)
	if err != nil || !ok { // the error quotes the kubeconfig
		return nil, &RefusedError{"", "is not YAML of a kubeconfig, has data that is not base64, or has a name twice"}
	}
	context := file.Contexts[file.CurrentContext]
	if context == nil {
		return nil, &RefusedError{"current-context", "names no context"}
	}
	cluster, user := file.Clusters[context.Cluster], file.AuthInfos[context.AuthInfo]
	if cluster == nil {
		return nil, &RefusedError{"contexts[].context.cluster", "names no cluster"}
	}
	if user == nil {
		return nil, &RefusedError{"contexts[].context.user", "names no user"}
	}

	var refused error
	refuse := func(present, allowed bool, field, reason string) {
		if present && !allowed && refused == nil {
			refused = &RefusedError{field, reason}
		}
	}
	path := func(value, field string) {
		refuse(value != "", allow.Files, field, "would read a file of this process (see Allow.Files)")
		refuse(value != "", filepath.IsAbs(value), field, "is not an absolute path")
	}
	refuse(user.Exec != nil, allow.Exec, "users[].user.exec", "would run a program in this process (see Allow.Exec)")
	refuse(user.AuthProvider != nil, allow.AuthProvider, "users[].user.auth-provider", "would run a plugin (see Allow.AuthProvider)")
	path(cluster.CertificateAuthority, "clusters[].cluster.certificate-authority")
	path(user.ClientCertificate, "users[].user.client-certificate")
	path(user.ClientKey, "users[].user.client-key")
	path(user.TokenFile, "users[].user.tokenFile")
	const other = "would act as another user (see Allow.Impersonate)"
	refuse(user.Impersonate != "", allow.Impersonate, "users[].user.as", other)
	refuse(user.ImpersonateUID != "", allow.Impersonate, "users[].user.as-uid", other)
	refuse(len(user.ImpersonateGroups) > 0, allow.Impersonate, "users[].user.as-groups", other)
	refuse(len(user.ImpersonateUserExtra) > 0, allow.Impersonate, "users[].user.as-user-extra", other)
	refuse(cluster.InsecureSkipTLSVerify, allow.Insecure, "clusters[].cluster.insecure-skip-tls-verify", "would trust any server (see Allow.Insecure)")
	refuse(cluster.ProxyURL != "", allow.Proxy, "clusters[].cluster.proxy-url", "would send the requests to another host (see Allow.Proxy)")
	proxy, ok := parse(cluster.ProxyURL, "http", "https", "socks5")
	refuse(cluster.ProxyURL != "", ok, "clusters[].cluster.proxy-url", "is not a URL with http, https or socks5")
	server, ok := parse(cluster.Server, "http", "https")
	refuse(true, ok && server.User == nil && server.RawQuery == "" && server.Fragment == "", "clusters[].cluster.server", "is not a URL such as https://host:port/path")
	refuse(ok && server.Scheme == "http", allow.HTTP, "clusters[].cluster.server", "has no TLS (see Allow.HTTP)")
	refuse(strings.ContainsAny(user.Token, "\r\n"), false, "users[].user.token", "has more than one line")
	refuse(user.Token != "" || user.TokenFile != "", user.Username == "" && user.Password == "", "users[].user.username", "contradicts the token")
	if refused != nil {
		return nil, refused
	}

	// Only fields that are checked above get into the configuration, also when client-go has new ones.
	config := &rest.Config{
		Host: cluster.Server, DisableCompression: cluster.DisableCompression,
		Username: user.Username, Password: user.Password, BearerToken: user.Token, BearerTokenFile: user.TokenFile,
		Impersonate: rest.ImpersonationConfig{
			UserName: user.Impersonate, UID: user.ImpersonateUID, Groups: user.ImpersonateGroups, Extra: user.ImpersonateUserExtra,
		},
		TLSClientConfig: rest.TLSClientConfig{
			Insecure: cluster.InsecureSkipTLSVerify, ServerName: cluster.TLSServerName,
			CAFile: cluster.CertificateAuthority, CAData: cluster.CertificateAuthorityData,
			CertFile: user.ClientCertificate, CertData: user.ClientCertificateData,
			KeyFile: user.ClientKey, KeyData: user.ClientKeyData,
		},
		AuthProvider: user.AuthProvider, ExecProvider: user.Exec,
	}
	if cluster.ProxyURL != "" {
		config.Proxy = http.ProxyURL(proxy)
	}
	if user.Exec != nil {
		user.Exec.StdinUnavailable, user.Exec.InstallHint = true, "" // the hint would be logged
		user.Exec.Config = cluster.Extensions["client.authentication.k8s.io/exec"]
	}
	if certs := config.TLSClientConfig; certs.CAFile == "" && certs.CertFile == "" && certs.KeyFile == "" {
		if _, err := rest.TLSConfigFor(&rest.Config{TLSClientConfig: certs}); err != nil { // or the first connection would fail
			return nil, &RefusedError{"", "the certificate authority, or the client certificate with its key, cannot be used"}
		}
	}
	return config, nil
}

func parse(text string, schemes ...string) (*url.URL, bool) {
	parsed, err := url.Parse(text)
	return parsed, err == nil && parsed.Hostname() != "" && slices.Contains(schemes, parsed.Scheme)
}
