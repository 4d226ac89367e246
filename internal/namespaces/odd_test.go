package namespaces_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
)

// oddClient is the client of a namespace whose lists have a version that cannot be compared.
type oddClient struct {
	informer.UntypedClient[*metav1.List]
	version string // "" for the true one
}

func (c oddClient) List(ctx context.Context, opts metav1.ListOptions) (*metav1.List, error) {
	list, err := c.UntypedClient.List(ctx, opts)
	if err == nil && c.version != "" {
		list.ResourceVersion = c.version
	}
	return list, err
}

// Nobody can say whether such a namespace has reached a version, so no caller is told that all
// namespaces have.
func TestAVersionThatCannotBeComparedIsNotPassed(t *testing.T) {
	for _, namespaces := range [][]string{{"odd", "b"}, {"b", "odd"}, {"b", "odd", "c"}} {
		t.Run(strings.Join(namespaces, " "), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src := informertest.NewSource(object("odd", "x", "1"), object("b", "x", "1"))
				client := func(namespace string) oddClient {
					c := oddClient{UntypedClient: src.Namespace(namespace)}
					if namespace == "odd" {
						c.version = "0"
					}
					return c
				}
				inf, err := informer.NewInNamespaces(client, namespaces, options{WatchList: informer.WatchListOff, ErrorHandler: testkit.Ignore})
				if err != nil {
					t.Fatal(err)
				}
				informertest.Run(t, inf)
				if got := inf.ResourceVersion(); got != "0" {
					t.Errorf("the version is %q", got)
				}
				err = inf.WaitForVersion(testkit.Within(t, time.Second), "", src.ResourceVersion())
				if err == nil || !strings.Contains(err.Error(), "cannot be compared") {
					t.Errorf("WaitForVersion: %v", err)
				}
				if err := inf.WaitForVersion(testkit.Within(t, time.Second), "b", src.ResourceVersion()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
