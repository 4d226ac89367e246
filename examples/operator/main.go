// Command operator operates on Websites, a custom resource (crd.yaml): each of them gets
// an Ingress, and a status that says where it can be reached. It is an example of an
// operator on this library, and could be one that does something else.
//
//	kubectl apply -f examples/operator/crd.yaml
//	go run ./examples/operator -kubeconfig ~/.kube/config
package main

import (
	"context"
	"flag"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/customcacheinformer/informer/examples/operator/website"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig file of the cluster; without it, the one that this process runs in")
	workers := flag.Int("workers", 4, "for how many Websites at once")
	klog.InitFlags(nil)
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := connect(ctx, *kubeconfig, *workers)
	stop()
	if err != nil {
		klog.ErrorS(err, "The operator cannot go on")
		klog.FlushAndExit(klog.ExitFlushTimeout, 1)
	}
}

func connect(ctx context.Context, kubeconfig string, workers int) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1 // the API server's priority and fairness sets the pace
	sites, err := website.NewForConfig(config)
	if err != nil {
		return err
	}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	return run(ctx, sites, kube, workers)
}
