package clusters

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/object"
)

// Secrets is a [Source] that reads kubeconfigs from the Secrets of one namespace. The name of a cluster is the
// name of its Secret. The program needs the verbs list and watch on the Secrets of this namespace. The first three
// fields are required.
type Secrets struct {
	// Client is a client of the cluster that has the Secrets, such as clientset.CoreV1().
	Client corev1client.SecretsGetter
	// Namespace is the namespace of the Secrets.
	Namespace string
	// Selector is the label selector of the Secrets, such as "example.com/fleet=east". It must not be empty, because
	// then every Secret of the namespace would count as a cluster.
	Selector string
	// Key is the key of the kubeconfig in a Secret. Cluster API uses "value". Defaults to "kubeconfig".
	Key string
}

type secretsFeed struct {
	*informer.CustomCacheInformer[*corev1.Secret]
	watcher *informer.Registration
}

func (f secretsFeed) synced() <-chan struct{} { return f.watcher.Synced() }
func (f secretsFeed) trouble() error          { return f.Health().SourceError }

func (s Secrets) open(name string, set *set, report func(context.Context, error)) (feed, error) {
	selector, err := labels.Parse(s.Selector)
	switch {
	case object.IsNil(s.Client) || s.Namespace == "":
		return nil, errors.New("Secrets: Client or Namespace is not set")
	case err != nil:
		return nil, fmt.Errorf("Secrets.Selector: %w", err)
	case selector.Empty():
		return nil, errors.New("Secrets.Selector is empty: it would select each Secret of the namespace")
	}
	inf, err := informer.New(s.Client.Secrets(s.Namespace), informer.Options[*corev1.Secret]{
		Name: name, ErrorHandler: report,
		TweakListOptions: func(opts *metav1.ListOptions) { opts.LabelSelector = s.Selector },
		Omit:             []string{"metadata.managedFields", "metadata.annotations"},
	})
	if err != nil {
		return nil, err
	}
	key := cmp.Or(s.Key, "kubeconfig")
	follow := func(ctx context.Context, e informer.Event[*corev1.Secret]) error {
		var kubeconfig []byte // nil if the Secret was deleted
		var missing error
		if e.Type != informer.EventDeleted {
			if kubeconfig = e.New.Data[key]; len(kubeconfig) == 0 {
				missing = &RefusedError{"", "the Secret has no key " + key}
			}
		}
		_, refused, failed := set.update(ctx, e.Object().Name, kubeconfig, missing)
		if refused != nil && failed == nil { // it waits for another kubeconfig
			return fmt.Errorf("%w: %w", informer.ErrPermanent, refused)
		}
		err := errors.Join(refused, failed)
		if errors.Is(err, informer.ErrPermanent) { // that of a follower, which is called again
			err = errors.New(err.Error())
		}
		return err
	}
	watcher, err := inf.AddWatcher(informer.WatcherFunc[*corev1.Secret](follow),
		// There are more workers than reads, so that some go on while clusters that do not answer are compared.
		informer.WatcherOptions{Name: "kubeconfigs", Workers: 2 * maxReads, Retry: informer.Backoff(time.Second, time.Minute, 0)},
	)
	return secretsFeed{inf, watcher}, err
}
