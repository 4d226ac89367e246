// Command elected is a complete program with several replicas. One of them is elected and works,
// and each serves probes, metrics and the page of its informers. It logs the ConfigMaps that have
// no label "owner". To write your own program, copy it and replace reconcile.
//
//	go run ./examples/elected -kubeconfig ~/.kube/config -http localhost:8080
package main

import (
	"context"
	"errors"
	"flag"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/debug"
	"github.com/customcacheinformer/informer/enqueue"
	informerprometheus "github.com/customcacheinformer/informer/metrics/prometheus"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig file of the cluster (default: the cluster that this process runs in)")
	address := flag.String("http", ":8080", "serve probes, metrics and the page of the informers at this address")
	namespace := flag.String("lease-namespace", "default", "namespace of the Lease for the election")
	klog.InitFlags(nil)
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := connect(ctx, *kubeconfig, *address, *namespace)
	stop()
	if err != nil {
		klog.ErrorS(err, "The program cannot go on")
		klog.FlushAndExit(klog.ExitFlushTimeout, 1)
	}
}

// connect runs a replica until ctx ends, or until it has lost its election.
func connect(ctx context.Context, kubeconfig, address, namespace string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1 // the API server limits the rate: a limit here would delay the election, too
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	name, err := os.Hostname() // the name of the Pod
	if err != nil {
		return err
	}
	name += "_" + string(uuid.NewUUID()) // two processes with one identity would both lead
	provider, queues := informerprometheus.NewWorkqueues()
	workqueue.SetProvider(provider)
	r, err := newReplica(client, namespace, name, queues)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: r, ReadHeaderTimeout: time.Minute}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	err = runElected(ctx, &r.group, r.lock, r.elected, r.lost)
	_ = server.Close()
	serving.Wait()
	return err
}

// replica is one of several processes. As an http.Handler it serves its probes, metrics and page.
type replica struct {
	*http.ServeMux
	group   informer.Group
	configs *informer.CustomCacheInformer[*corev1.ConfigMap]
	lock    resourcelock.Interface
	elected chan struct{} // closed when this replica is the leader
	lost    chan struct{} // closed when it is not the leader any more
}

func newReplica(client kubernetes.Interface, namespace, name string, more ...prometheus.Collector) (*replica, error) {
	r := &replica{
		ServeMux: http.NewServeMux(),
		lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: namespace, Name: "elected"},
			Client:     client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: name},
		},
		elected: make(chan struct{}), lost: make(chan struct{}),
	}
	metrics := informerprometheus.New(r.group.Health)
	r.group.Observer = metrics.Observer() // before members are added
	registry := prometheus.NewRegistry()
	registry.MustRegister(append(more, metrics)...)
	r.Handle("/livez", informer.ProbeHandler(r.group.Live))
	r.Handle("/readyz", informer.ProbeHandler(r.group.Ready))
	r.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	r.Handle("/debug/informers", debug.Handler(r.group.Health))

	var err error
	r.configs, err = informer.New(client.CoreV1().ConfigMaps(""), informer.Options[*corev1.ConfigMap]{})
	if err != nil {
		return nil, err
	}
	controller, err := enqueue.NewController(r.reconcile, enqueue.Options{Name: "config", Elected: r.elected, Lost: r.lost}, enqueue.For(r.configs))
	if err != nil {
		return nil, err
	}
	return r, errors.Join(r.group.Add(r.configs), r.group.Add(controller))
}

// reconcile is called only on the leader: for each ConfigMap, and again after each change of it.
// After an error it is called again, later.
func (r *replica) reconcile(ctx context.Context, key types.NamespacedName) (again time.Duration, err error) {
	config, exists, err := r.configs.Get(key)
	if err != nil || !exists {
		return 0, err
	}
	if config.Labels["owner"] == "" {
		klog.FromContext(ctx).Info("A ConfigMap has no owner", "key", key)
	}
	return 0, nil
}

// runElected runs a group on each replica. Its controllers have elected as Options.Elected and lost as
// Options.Lost. When it returns, end the process.
func runElected(ctx context.Context, group *informer.Group, lock resourcelock.Interface, elected, lost chan struct{}) error {
	running, end := context.WithCancelCause(ctx)
	defer end(nil)
	electing, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { close(elected) },
			OnStoppedLeading: func() { end(informer.ErrLeaseLost); close(lost) },
		},
	})
	if err != nil {
		return err
	}
	var elections sync.WaitGroup
	elections.Go(func() { elector.Run(electing) })
	ended := make(chan error, 1)
	go func() { ended <- group.Run(running) }()
	wasLost := false // perhaps in the middle of a stop, whose cause is another one
	select {
	case err = <-ended:
	case <-lost:
		wasLost = true
		select {
		case err = <-ended:
		case <-time.After(5 * time.Second): // LeaseDuration less RenewDeadline
			err = errors.New("a call has not returned, and ends with the process")
		}
	}
	release() // no call is under way any more, so another replica may begin
	elections.Wait()
	if wasLost || errors.Is(context.Cause(running), informer.ErrLeaseLost) {
		err = errors.Join(informer.ErrLeaseLost, err)
	}
	return err
}
