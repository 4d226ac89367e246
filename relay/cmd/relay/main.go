// Command relay serves Kubernetes resources, read-only, to a fleet of agents. It needs only one
// watch of each resource at the API server. See package relay.
package main

import (
	"context"
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/features"
	genericapiserver "k8s.io/apiserver/pkg/server"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/cli"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/term"
)

func init() {
	gates := utilfeature.DefaultMutableFeatureGate
	utilruntime.Must(logsapi.AddFeatureGates(gates))
	// The relay selects shards by itself, whatever the API server can do.
	utilruntime.Must(gates.OverrideDefault(features.ShardedListAndWatch, true))
}

func main() {
	os.Exit(cli.Run(newCommand(genericapiserver.SetupSignalContext())))
}

// newCommand returns the command relay. The command runs until ctx ends.
func newCommand(ctx context.Context) *cobra.Command {
	o := newOptions()
	cmd := &cobra.Command{
		Use:   "relay --resources=pods,leases.coordination.k8s.io",
		Short: "Serves Kubernetes resources, to read, to a fleet of agents",
		Long: "The relay serves resources of an API server, to read, to any number of clients. It has one " +
			"watch of each resource at the API server. Clients use it as their API server. It asks the API " +
			"server who they are and what they may read.",
		Args:         cobra.NoArgs,
		Version:      version(),
		SilenceUsage: true,
		RunE: func(*cobra.Command, []string) error {
			if err := logsapi.ValidateAndApply(o.logs, utilfeature.DefaultFeatureGate); err != nil {
				return err
			}
			return o.run(ctx)
		},
	}
	sections := o.sections(cmd.Name())
	for _, name := range sections.Order {
		cmd.Flags().AddFlagSet(sections.FlagSets[name])
	}
	columns, _, _ := term.TerminalSize(cmd.OutOrStdout())
	cliflag.SetUsageAndHelpFunc(cmd, sections, columns)
	return cmd
}

// version returns the version of the module, and the version of k8s.io/apiserver in it.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	text := info.Main.Version
	for _, module := range info.Deps {
		if module.Path == "k8s.io/apiserver" {
			text += ", " + module.Path + " " + module.Version
		}
	}
	return text
}
