package informertest_test

import (
	"errors"
	"net/url"
	"syscall"
	"testing"
	"testing/synctest"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/customcacheinformer/informer/informertest"
)

func wantRefused(t *testing.T, what string, err error) {
	t.Helper()
	var wrapped *url.Error
	if !errors.Is(err, syscall.ECONNREFUSED) || !utilnet.IsConnectionRefused(err) || !errors.As(err, &wrapped) {
		t.Errorf("%s: got error %v", what, err)
	}
}

func TestAServerThatGoesDownEndsWatchesAndRefusesRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(configMap("a", "1"))
		w := openWatch(t, src, metav1.ListOptions{ResourceVersion: "1001"})
		src.Fail("list", errors.New("mine"), 1)
		src.SetFaults(informertest.Faults{Down: true})
		wantClosed(t, w)
		if n := src.Watches(); n != 0 {
			t.Errorf("%d watches are open", n)
		}
		_, err := src.List(metav1.ListOptions{})
		wantRefused(t, "LIST", err)
		_, err = src.Watch(metav1.ListOptions{})
		wantRefused(t, "WATCH", err)
		_, err = src.Namespace("default").List(t.Context(), metav1.ListOptions{})
		wantRefused(t, "LIST of a namespace", err)
		if n := len(src.Requests()); n != 4 {
			t.Errorf("%d requests are recorded, want 4", n)
		}
		wantRefused(t, "the last request", src.Requests()[3].Err)

		// The source itself can be changed meanwhile.
		src.Apply(configMap("a", "2"))
		must(src.Create(configMap("b", "1")))
		must(src.Update(configMap("b", "2")))
		must(src.Delete(keyOf("a")))
		must(src.Get(keyOf("b")))

		src.SetFaults(informertest.Faults{})
		if _, err := src.List(metav1.ListOptions{}); err == nil || err.Error() != "mine" {
			t.Errorf("the failure of Fail is used up: %v", err)
		}
		wantEvents(t, openWatch(t, src, metav1.ListOptions{ResourceVersion: "1001"}),
			"MODIFIED a=2 @1002", "ADDED b=1 @1003", "MODIFIED b=2 @1004", "DELETED a=2 @1005")
		src.SetFaults(informertest.Faults{Down: true})
		src.Heal()
		wantItems(t, must(src.List(metav1.ListOptions{})), "b=2 @1004")
	})
}

func TestAListUnderWayFailsIfTheServerIsDownAtItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(configMap("a", "1"))
		for _, comesBack := range []bool{false, true} {
			src.SetFaults(informertest.Faults{HoldLists: true})
			done := make(chan error)
			go func() {
				_, err := src.List(metav1.ListOptions{})
				done <- err
			}()
			synctest.Wait()
			src.SetFaults(informertest.Faults{Down: true, HoldLists: true})
			src.SetFaults(informertest.Faults{Down: !comesBack})
			if err := <-done; comesBack != (err == nil) {
				t.Errorf("a server that comes back (%v) answered %v", comesBack, err)
			}
		}
	})
}

func TestAClientsetOfADownServerIsRefused(t *testing.T) {
	ctx := t.Context()
	src := informertest.NewSource(podIn("ns", "a"))
	client := serving(src)
	pods := client.CoreV1().Pods("ns")
	src.SetFaults(informertest.Faults{Down: true})
	for method, call := range map[string]func() error{
		"Get list": func() error { _, err := pods.List(ctx, metav1.ListOptions{}); return err },
		"Get":      func() error { _, err := pods.Get(ctx, "a", metav1.GetOptions{}); return err },
		"Get watch": func() error {
			_, err := pods.Watch(ctx, metav1.ListOptions{})
			return err
		},
		"Post":       func() error { _, err := pods.Create(ctx, podIn("ns", "b"), metav1.CreateOptions{}); return err },
		"Put":        func() error { _, err := pods.Update(ctx, podIn("ns", "a"), metav1.UpdateOptions{}); return err },
		"Put status": func() error { _, err := pods.UpdateStatus(ctx, podIn("ns", "a"), metav1.UpdateOptions{}); return err },
		"Patch": func() error {
			_, err := pods.Patch(ctx, "a", types.MergePatchType, []byte("{}"), metav1.PatchOptions{})
			return err
		},
		"Delete": func() error { return pods.Delete(ctx, "a", metav1.DeleteOptions{}) },
		"Delete all": func() error {
			return pods.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
		},
	} {
		err := call()
		wantRefused(t, method, err)
		var wrapped *url.Error
		if errors.As(err, &wrapped) && method[:len(wrapped.Op)] != wrapped.Op {
			t.Errorf("%s: the method of the error is %s", method, wrapped.Op)
		}
	}
	src.SetFaults(informertest.Faults{})
	if list, err := pods.List(ctx, metav1.ListOptions{}); err != nil || len(list.Items) != 1 || list.Items[0].Name != "a" {
		t.Errorf("a request that was refused has changed something: %v, %v", list, err)
	}
	if _, err := pods.Patch(ctx, "a", types.ApplyPatchType, []byte("{}"), metav1.PatchOptions{}); !apierrors.IsMethodNotSupported(err) {
		t.Errorf("an apply, after Up: %v", err)
	}
}
