package clusters_test

import (
	"encoding/base64"
	"errors"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/tools/clientcmd/api/latest"

	"github.com/customcacheinformer/informer/clusters"
)

type (
	cluster = clientcmdapi.Cluster
	user    = clientcmdapi.AuthInfo
)

func TestConfigHasTheFieldsOfTheKubeconfig(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nowhere")
	t.Setenv("KUBERNETES_MASTER", "https://nowhere")
	config := must(clusters.Config(kubeconfig("east:6443/path", "token", func(c *cluster, u *user) {
		c.CertificateAuthorityData, c.TLSServerName, c.DisableCompression = cert, "name", true
		u.ClientCertificateData, u.ClientKeyData = cert, key
	}), clusters.Allow{}))
	tls := config.TLSClientConfig
	if config.Host != "https://east:6443/path" || config.BearerToken != "token" || !config.DisableCompression || tls.ServerName != "name" ||
		string(tls.CAData) != string(cert) || string(tls.CertData) != string(cert) || string(tls.KeyData) != string(key) {
		t.Errorf("the configuration lacks fields: %v", config)
	}
	config = must(clusters.Config(kubeconfig("east", "", func(_ *cluster, u *user) { u.Username, u.Password = "me", "word" }), clusters.Allow{}))
	if config.Username != "me" || config.Password != "word" {
		t.Errorf("the configuration is %v", config)
	}
}

func TestEachDangerousFieldIsRefusedUntilItIsAllowed(t *testing.T) {
	file, plain := filepath.Join(t.TempDir(), "s3cret"), must(clusters.Config(kubeconfig("s3cret", "s3cret"), clusters.Allow{}))
	program := &clientcmdapi.ExecConfig{Command: "s3cret", APIVersion: "client.authentication.k8s.io/v1", InstallHint: "s3cret"}
	for _, test := range []struct {
		field string
		allow clusters.Allow
		edit  func(*cluster, *user)
	}{
		{"users[].user.exec", clusters.Allow{Exec: true}, func(_ *cluster, u *user) { u.Exec = program }},
		{"users[].user.auth-provider", clusters.Allow{AuthProvider: true}, func(_ *cluster, u *user) { u.AuthProvider = &clientcmdapi.AuthProviderConfig{Name: "s3cret"} }},
		{"clusters[].cluster.certificate-authority", clusters.Allow{Files: true}, func(c *cluster, _ *user) { c.CertificateAuthority = file }},
		{"users[].user.client-certificate", clusters.Allow{Files: true}, func(_ *cluster, u *user) { u.ClientCertificate = file }},
		{"users[].user.client-key", clusters.Allow{Files: true}, func(_ *cluster, u *user) { u.ClientKey = file }},
		{"users[].user.tokenFile", clusters.Allow{Files: true}, func(_ *cluster, u *user) { u.TokenFile = file }},
		{"users[].user.as", clusters.Allow{Impersonate: true}, func(_ *cluster, u *user) { u.Impersonate = "s3cret" }},
		{"users[].user.as-uid", clusters.Allow{Impersonate: true}, func(_ *cluster, u *user) { u.ImpersonateUID = "s3cret" }},
		{"users[].user.as-groups", clusters.Allow{Impersonate: true}, func(_ *cluster, u *user) { u.ImpersonateGroups = []string{"s3cret"} }},
		{"users[].user.as-user-extra", clusters.Allow{Impersonate: true}, func(_ *cluster, u *user) { u.ImpersonateUserExtra = map[string][]string{"s3cret": {"s3cret"}} }},
		{"clusters[].cluster.insecure-skip-tls-verify", clusters.Allow{Insecure: true}, func(c *cluster, _ *user) { c.InsecureSkipTLSVerify = true }},
		{"clusters[].cluster.proxy-url", clusters.Allow{Proxy: true}, func(c *cluster, _ *user) { c.ProxyURL = "socks5://s3cret:1" }},
		{"clusters[].cluster.server", clusters.Allow{HTTP: true}, func(c *cluster, _ *user) { c.Server = "http://s3cret" }},
	} {
		text, all := kubeconfig("s3cret", "s3cret", test.edit), everything
		mustRefuse(t, text, clusters.Allow{}, test.field)
		config := must(clusters.Config(text, test.allow))
		if reflect.DeepEqual(config, plain) {
			t.Errorf("%s is allowed, and missing in the configuration", test.field)
		}
		if e := config.ExecProvider; e != nil && (e.Command != "s3cret" || !e.StdinUnavailable || e.InstallHint != "") {
			t.Errorf("the program is %v", e)
		}
		// Every other field may be allowed without it.
		for field := range reflect.ValueOf(test.allow).NumField() {
			if reflect.ValueOf(test.allow).Field(field).Bool() {
				reflect.ValueOf(&all).Elem().Field(field).SetBool(false)
			}
		}
		mustRefuse(t, text, all, test.field)
	}
}

var everything = clusters.Allow{Exec: true, AuthProvider: true, Files: true, Proxy: true, Insecure: true, HTTP: true, Impersonate: true}

// mustRefuse fails the test unless Config refuses text because of field, and its error has no part of text.
func mustRefuse(t *testing.T, text []byte, allow clusters.Allow, field string) {
	t.Helper()
	_, err := clusters.Config(text, allow)
	var refused *clusters.RefusedError
	if !errors.As(err, &refused) || refused.Field != field || strings.Contains(err.Error(), "s3cret") || !strings.Contains(err.Error(), field) {
		t.Errorf("Config returned the error %v, want one about %q, without values", err, field)
	}
}

func TestAWrongKubeconfigIsRefusedWithoutItsValues(t *testing.T) {
	for name, test := range map[string]struct {
		field string
		edit  func(*cluster, *user)
	}{
		"a path that is not absolute": {"users[].user.tokenFile", func(_ *cluster, u *user) { u.TokenFile = "s3cret" }},
		"a proxy of another kind":     {"clusters[].cluster.proxy-url", func(c *cluster, _ *user) { c.ProxyURL = "ftp://s3cret" }},
		"a proxy that is not a URL":   {"clusters[].cluster.proxy-url", func(c *cluster, _ *user) { c.ProxyURL = "://s3cret" }},
		"no server":                   {"clusters[].cluster.server", func(c *cluster, _ *user) { c.Server = "" }},
		"a server without a scheme":   {"clusters[].cluster.server", func(c *cluster, _ *user) { c.Server = "s3cret:6443" }},
		"a server with a user":        {"clusters[].cluster.server", func(c *cluster, _ *user) { c.Server = "https://s3cret:s3cret@east" }},
		"a server with a query":       {"clusters[].cluster.server", func(c *cluster, _ *user) { c.Server = "https://east?s3cret" }},
		"a socket":                    {"clusters[].cluster.server", func(c *cluster, _ *user) { c.Server = "unix:///s3cret" }},
		"a token of two lines":        {"users[].user.token", func(_ *cluster, u *user) { u.Token = "s3cret\n" }},
		"a token and a password":      {"users[].user.username", func(_ *cluster, u *user) { u.Username, u.Password = "s3cret", "s3cret" }},
		"a CA that is none":           {"", func(c *cluster, _ *user) { c.CertificateAuthorityData = []byte("s3cret") }},
		"a CA that is not used":       {"", func(c *cluster, _ *user) { c.CertificateAuthorityData, c.InsecureSkipTLSVerify = cert, true }},
		"a key that is none":          {"", func(_ *cluster, u *user) { u.ClientCertificateData, u.ClientKeyData = cert, []byte("s3cret") }},
	} {
		t.Run(name, func(t *testing.T) { mustRefuse(t, kubeconfig("s3cret", "s3cret", test.edit), everything, test.field) })
	}

	good := string(kubeconfig("s3cret", "s3cret"))
	replace := func(from, to string) string {
		if !strings.Contains(good, from) {
			t.Fatalf("there is no %q in:\n%s", from, good)
		}
		return strings.Replace(good, from, to, 1)
	}
	for name, test := range map[string]struct{ field, text string }{
		"nothing":            {"current-context", ""},
		"no context":         {"current-context", replace("current-context: x", "current-context: s3cret")},
		"no current-context": {"current-context", replace("current-context: x", "")},
		"no cluster":         {"contexts[].context.cluster", replace("    cluster: c", "    cluster: s3cret")},
		"no user":            {"contexts[].context.user", replace("    user: u", "    user: s3cret")},
		"two contexts":       {"", replace("contexts:\n", "contexts:\n- context: {cluster: s3cret}\n  name: x\n")},
		"two users":          {"", replace("users:\n", "users:\n- user: {token: s3cret}\n  name: u\n")},
		"another type":       {"", replace("token: s3cret", "token: {s3cret: s3cret}")},
		"no base64":          {"", replace("token: s3cret", "client-key-data: '*s3cret*'")},
		"another kind":       {"", replace("kind: Config", "kind: s3cret")},
		"no YAML":            {"", "s3cret\n- s3cret: [s3cret"},
		"binary":             {"", "\x00\xff" + good},
		"too large":          {"", good + strings.Repeat("#", clusters.MaxSize)},
	} {
		t.Run(name, func(t *testing.T) { mustRefuse(t, []byte(test.text), everything, test.field) })
	}
}

func TestOnlyTheCurrentContextCounts(t *testing.T) {
	file := must(runtime.Decode(latest.Codec, kubeconfig("east", "token"))).(*clientcmdapi.Config)
	file.AuthInfos["other"] = &user{Exec: &clientcmdapi.ExecConfig{Command: "program"}}
	file.Clusters["other"] = &cluster{Server: "http://other"}
	file.Contexts["other"] = &clientcmdapi.Context{Cluster: "other", AuthInfo: "other"}
	text := must(runtime.Encode(latest.Codec, file))
	if config, err := clusters.Config(text, clusters.Allow{}); err != nil || config.Host != "https://east" {
		t.Errorf("the configuration is %v, %v", config, err)
	}
}

func FuzzConfig(f *testing.F) {
	f.Add(string(kubeconfig("east", "token")))
	f.Add(string(kubeconfig("east", "", func(c *cluster, u *user) {
		u.Exec, u.TokenFile, c.ProxyURL, c.CertificateAuthorityData = &clientcmdapi.ExecConfig{Command: "x"}, "/x", "http://x", cert
	})))
	f.Add("a: &a [x]\nb: [*a, *a]")
	f.Add(base64.StdEncoding.EncodeToString(cert))
	f.Fuzz(func(t *testing.T, text string) {
		config, err := clusters.Config([]byte(text), clusters.Allow{})
		if err != nil {
			return
		}
		files := []string{config.CAFile, config.CertFile, config.KeyFile, config.BearerTokenFile, config.Impersonate.UserName}
		if config.ExecProvider != nil || config.AuthProvider != nil || config.Insecure || config.Proxy != nil ||
			slices.ContainsFunc(files, func(s string) bool { return s != "" }) || !strings.HasPrefix(strings.ToLower(config.Host), "https://") {
			t.Errorf("Config accepts %q", text)
		}
	})
}
