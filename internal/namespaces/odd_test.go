package namespaces_test

import (
	"context"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
)

// oddClient is the client of a namespace whose lists have a version that cannot be compared.
type oddClient struct {
	informer.UntypedClient[*metav1.List]
}

func (c oddClient) List(ctx context.Context, opts metav1.ListOptions) (*metav1.List, error) {
	list, err := c.UntypedClient.List(ctx, opts)
	if err == nil {
		list.ResourceVersion = "0"
	}
	return list, err
}

// It is unknown whether such a namespace has reached a version, so no wait returns as if all
// namespaces had.
func TestAVersionThatCannotBeComparedIsNotPassed(t *testing.T) {
	for _, namespaces := range [][]string{{"odd", "b"}, {"b", "odd"}, {"b", "odd", "c"}} {
		inBubble(t, strings.Join(namespaces, " "), func(t *testing.T) {
			s := newServer(object("odd", "x", "1"), object("b", "x", "1"))
			s.other = map[string]informer.UntypedClient[*metav1.List]{"odd": oddClient{s.gate("odd")}}
			inf := s.informer(t, options{WatchList: informer.WatchListOff, ErrorHandler: testkit.Ignore}, namespaces...)
			informertest.Run(t, inf)
			equal(t, "version", inf.ResourceVersion(), "0")
			errorSays(t, inf.WaitForVersion(testkit.Within(t, time.Second), "", s.ResourceVersion()), "cannot be compared")
			noError(t, inf.WaitForVersion(testkit.Within(t, time.Second), "b", s.ResourceVersion()))
		})
	}
}
