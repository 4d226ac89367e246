package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	genericoptions "k8s.io/apiserver/pkg/server/options"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/cli/globalflag"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/customcacheinformer/informer/relay"
)

type options struct {
	kubeconfig        string
	resources         []string
	dataDir           string
	minRequestTimeout int
	relay             relay.Options
	logs              *logsapi.LoggingConfiguration
}

func newOptions() *options {
	serving := genericoptions.NewSecureServingOptions()
	serving.BindPort = 6443
	serving.ServerCert.PairName = "relay"
	serving.ServerCert.CertDirectory = "" // a certificate that the relay makes for itself stays in memory
	authentication := genericoptions.NewDelegatingAuthenticationOptions()
	// A relay also starts while the API server is away. The headers of the front proxy then have no
	// effect until the relay is started again. Tokens and client certificates work.
	authentication.TolerateInClusterLookupFailure = true
	return &options{
		minRequestTimeout: 1800,
		logs:              logsapi.NewLoggingConfiguration(),
		relay: relay.Options{
			Serving:             serving.WithLoopback(),
			Authentication:      authentication,
			Authorization:       genericoptions.NewDelegatingAuthorizationOptions(),
			MaxStaleness:        relay.DefaultMaxStaleness,
			MaxRequestsInFlight: 400,
		},
	}
}

func (o *options) sections(name string) (sections cliflag.NamedFlagSets) {
	fs := sections.FlagSet("relay")
	fs.StringVar(&o.kubeconfig, "kubeconfig", "", "The kubeconfig file of the API server. It is also the default of the files for "+
		"authentication and authorization. Without it, the relay must run in the cluster.")
	fs.StringSliceVar(&o.resources, "resources", nil, "The resources to serve, such as pods, leases.coordination.k8s.io "+
		"or widgets.v1.example.com. Required.")
	fs.StringVar(&o.dataDir, "data-dir", "", "A directory for the objects, so that the next start lists nothing. "+
		"Without it, the relay keeps them only in memory.")
	fs.BoolVar(&o.relay.AllowSecrets, "allow-secrets", false, "Allow secrets among the resources.")
	fs.BoolVar(&o.relay.RefuseConsistentReads, "refuse-consistent-reads", false, "Answer reads with resourceVersion=\"\" with 400 "+
		"instead of the state that the relay has. Then kubectl does not work, and some informers have to be started again.")
	fs.DurationVar(&o.relay.MaxStaleness, "max-staleness", o.relay.MaxStaleness, "How long the API server may be silent before "+
		"/readyz fails.")
	fs.IntVar(&o.minRequestTimeout, "min-request-timeout", o.minRequestTimeout, "The seconds after which a watch ends for which the "+
		"client asks no timeout, up to twice as many.")
	fs.IntVar(&o.relay.MaxRequestsInFlight, "max-requests-inflight", o.relay.MaxRequestsInFlight, "How many requests other than "+
		"watches may be under way. More are answered with 429.")
	utilfeature.DefaultMutableFeatureGate.AddFlag(fs)

	o.relay.Serving.AddFlags(sections.FlagSet("secure serving"))
	o.relay.Authentication.AddFlags(sections.FlagSet("authentication"))
	o.relay.Authorization.AddFlags(sections.FlagSet("authorization"))
	logsapi.AddFlags(o.logs, sections.FlagSet("logs"))
	sections.FlagSet("global").Bool("version", false, "Print the version and exit.")
	globalflag.AddGlobalFlags(sections.FlagSet("global"), name, logs.SkipLoggingConfigurationFlags())
	return sections
}

// complete sets the options that follow from other flags. It returns an error if a flag cannot be
// used.
func (o *options) complete() error {
	switch {
	case len(o.resources) == 0:
		return errors.New("--resources is empty")
	case o.minRequestTimeout <= 0:
		return fmt.Errorf("--min-request-timeout is %d, not a number of seconds from 1", o.minRequestTimeout)
	case o.relay.MaxStaleness <= 0:
		return fmt.Errorf("--max-staleness is %v, not more than 0", o.relay.MaxStaleness)
	case o.relay.MaxRequestsInFlight <= 0:
		return fmt.Errorf("--max-requests-inflight is %d, not more than 0", o.relay.MaxRequestsInFlight)
	}
	o.relay.MinWatchTimeout = time.Duration(o.minRequestTimeout) * time.Second
	for _, file := range []*string{&o.relay.Authentication.RemoteKubeConfigFile, &o.relay.Authorization.RemoteKubeConfigFile} {
		if *file == "" {
			*file = o.kubeconfig
		}
	}
	if err := o.relay.Serving.MaybeDefaultWithSelfSignedCerts("localhost", nil, []net.IP{net.IPv4(127, 0, 0, 1)}); err != nil {
		return fmt.Errorf("a certificate for the relay itself: %w", err)
	}
	var err error
	if o.relay.Upstream, err = clientcmd.BuildConfigFromFlags("", o.kubeconfig); err != nil {
		return err
	}
	rest.AddUserAgent(o.relay.Upstream, "relay")
	return nil
}

func (o *options) run(ctx context.Context) (failed error) {
	if err := o.complete(); err != nil {
		return err
	}
	o.relay.Names = o.resources
	if o.dataDir != "" {
		stores, err := newStores(o.dataDir, o.relay.Upstream)
		if err != nil {
			return err
		}
		defer func() { failed = errors.Join(failed, stores.close()) }()
		o.relay.Prepare = stores.open
	}
	metrics := served()
	o.relay.Observer = metrics.informers.Observer()
	r, err := relay.New(o.relay)
	if err != nil {
		return err
	}
	metrics.show(r, o.relay.MaxStaleness)
	return r.Run(ctx)
}
