package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("k8s.io/klog/v2.(*flushDaemon).run.func1")) // of the process
}

const kubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
current-context: c
users: [{name: u, user: {token: t}}]
`

// parse returns the options that a command line gives.
func parse(t *testing.T, args ...string) *options {
	t.Helper()
	o := newOptions()
	sections := o.sections("relay")
	flags := sections.FlagSet("all")
	for _, name := range sections.Order[:len(sections.Order)-1] {
		flags.AddFlagSet(sections.FlagSets[name])
	}
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	return o
}

func writeKubeconfig(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFlagsReachTheOptionsOfTheRelay(t *testing.T) {
	path := writeKubeconfig(t)
	o := parse(t, "--kubeconfig="+path, "--resources=pods,leases.coordination.k8s.io", "--allow-secrets", "--refuse-consistent-reads",
		"--max-staleness=7s", "--min-request-timeout=60", "--max-requests-inflight=9", "--secure-port=1234",
		"--authorization-webhook-cache-authorized-ttl=3s", "--authentication-kubeconfig=other")
	if err := o.complete(); err != nil {
		t.Fatal(err)
	}
	r := o.relay
	if !r.AllowSecrets || !r.RefuseConsistentReads || r.MaxStaleness != 7*time.Second || r.MinWatchTimeout != time.Minute ||
		r.MaxRequestsInFlight != 9 || r.Serving.BindPort != 1234 || r.Authorization.AllowCacheTTL != 3*time.Second {
		t.Errorf("got %+v", r)
	}
	if strings.Join(o.resources, " ") != "pods leases.coordination.k8s.io" || r.Upstream.Host != "https://127.0.0.1:1" {
		t.Errorf("got %v of %s", o.resources, r.Upstream.Host)
	}
	if r.Authentication.RemoteKubeConfigFile != "other" || r.Authorization.RemoteKubeConfigFile != path {
		t.Errorf("got kubeconfigs %s and %s", r.Authentication.RemoteKubeConfigFile, r.Authorization.RemoteKubeConfigFile)
	}
}

func TestACommandLineThatCannotBeUsedIsAnError(t *testing.T) {
	path := "--kubeconfig=" + writeKubeconfig(t)
	for want, args := range map[string][]string{
		"--resources is empty":         {path},
		"--min-request-timeout is 0":   {path, "--resources=pods", "--min-request-timeout=0"},
		"--max-staleness is 0":         {path, "--resources=pods", "--max-staleness=0"},
		"--max-requests-inflight is 0": {path, "--resources=pods", "--max-requests-inflight=0"},
		"no such file":                 {"--kubeconfig=/nonexistent", "--resources=pods"},
	} {
		if err := parse(t, args...).complete(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: got %v, want %s", args, err, want)
		}
	}
}

func TestTheRelayEndsIfTheAPIServerCannotBeAsked(t *testing.T) {
	cmd := newCommand(context.Background())
	cmd.SetArgs([]string{"--kubeconfig=" + writeKubeconfig(t), "--resources=pods"})
	if err := cmd.Execute(); err == nil || !strings.Contains(err.Error(), "discovery") {
		t.Errorf("got %v, want an error of discovery", err)
	}
}

func TestTheHelpNamesTheFlagsAndTheVersionIsTold(t *testing.T) {
	for flag, want := range map[string][]string{
		"--help":    {"Relay flags:", "--resources", "--data-dir", "Secure serving flags:", "--tls-cert-file", "--client-ca-file", "--logging-format"},
		"--version": {"k8s.io/apiserver"},
	} {
		var out bytes.Buffer
		cmd := newCommand(context.Background())
		cmd.SetOut(&out)
		cmd.SetArgs([]string{flag})
		if err := cmd.Execute(); err != nil {
			t.Fatal(err)
		}
		for _, text := range want {
			if !strings.Contains(out.String(), text) {
				t.Errorf("%s: %s is missing in %s", flag, text, &out)
			}
		}
	}
}

func TestShardsAreSelectedByDefault(t *testing.T) {
	if !utilfeature.DefaultFeatureGate.Enabled(features.ShardedListAndWatch) {
		t.Error("the feature gate ShardedListAndWatch is off")
	}
}
