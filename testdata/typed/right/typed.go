// Package typed is compiled by a test.
package typed

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/customcacheinformer/informer"
)

// New gives New a client for Pods.
func New(client kubernetes.Interface) error {
	_, err := informer.New(client.CoreV1().Pods(""), informer.Options[*corev1.Pod]{})
	return err
}
