package restart_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
	"github.com/customcacheinformer/informer/share"
)

// Tests of objects that a list has, and that are known already.

// Nothing shows that an object without a UID or a version is the one of the list that has failed.
func TestAListAfterAFailedOneDeliversPossibleChanges(t *testing.T) {
	for name, tc := range map[string]struct {
		transform func(configMap)
		again     []string
	}{
		"no UID":              {func(obj configMap) { obj.UID = "" }, []string{"initial updated o000", "initial updated o001"}},
		"no version":          {func(obj configMap) { obj.ResourceVersion = "" }, []string{"initial updated o000", "initial updated o001"}},
		"a UID and a version": {func(configMap) {}, nil},
	} {
		inBubble(t, name, func(t *testing.T) {
			src := newHalting(errHalt)
			src.failAt(1)
			inf := newInformer(t, src, options{
				WatchList: informer.WatchListOff, PageSize: 2, ErrorHandler: ignore,
				Transform: func(obj configMap) (configMap, error) {
					obj = obj.DeepCopy()
					tc.transform(obj)
					return obj, nil
				},
			})
			r := joined(t, inf)
			start(t, inf)
			synctest.Wait()
			known := len(told(r))
			src.failAt(-1)
			sleepBubble(time.Minute)
			again := slices.DeleteFunc(told(r)[known:], func(e string) bool { return !strings.Contains(e, "updated") })
			equal(t, "delivered again", again, tc.again)
			equal(t, "objects delivered before the failure", known, 2)
		})
	}
}

// The store keeps the last state of an object that cannot be used, but not that of an earlier object of the same name.
func TestTheDeleteOfAnObjectIsNotLostIfTheNextOfItsNameCannotBeUsed(t *testing.T) {
	for name, opts := range map[string]options{
		"own store":   {},
		"plain store": {Store: newPlainStore()},
		"Durable":     {Durable: informertest.NewDurable()},
	} {
		inBubble(t, name, func(t *testing.T) {
			src := informertest.NewSource(objects("a", "b")...)
			opts.ErrorHandler, opts.Transform = ignore, func(obj configMap) (configMap, error) {
				if obj.Data["value"] == "bad" {
					return obj, errors.New("bad")
				}
				return obj, nil
			}
			inf, r := watched(t, src, opts)
			testkit.Unreachable(src)
			_, _ = src.Delete(keyOf("a"))
			src.Apply(object("a", "bad"))
			src.Apply(object("b", "bad"))
			src.Expire()
			src.Heal()
			sleepBubble(5 * time.Minute)
			checkTold(t, r, "initial added a", "initial added b", "relist deleted a")
			if _, exists, err := inf.Get(keyOf("a")); exists || err != nil {
				t.Errorf("the store has an object that was deleted: %v, %v", exists, err)
			}
			src.Apply(object("a", "2"))
			src.Apply(object("b", "2"))
			synctest.Wait()
			equal(t, "events of the mended objects", told(r)[3:], []string{"watch added a", "watch updated b"})
			checkStore(t, inf, src)
			checkView(t, r, src)
		})
	}
}

func TestWithShareListsAreTakenInEarly(t *testing.T) {
	for intake, want := range map[informer.IntakeMode]int{informer.IntakeAuto: 2, informer.IntakeWhole: 0} {
		synctest.Test(t, func(t *testing.T) {
			src := newHalting(errHalt)
			src.failAt(1) // the second page
			inf := newInformer(t, src, options{
				Share: share.New(), Intake: intake, WatchList: informer.WatchListOff, PageSize: 2,
				ErrorHandler: ignore,
			})
			r := joined(t, inf)
			start(t, inf)
			synctest.Wait()
			equal(t, fmt.Sprintf("objects delivered from a list that fails, with Intake %d", intake), len(told(r)), want)
		})
	}
}

// A comparison that panics must not end the process, nor make the objects look equal.
func TestARelistComparesObjectsThatCannotBeCompared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		newStrange := func() *strange {
			s := &strange{hidden: 1}
			s.SetNamespace("default")
			s.SetName("a")
			s.SetUID("1")
			s.SetResourceVersion("1")
			return s
		}
		lists := 0
		src := &cache.ListWatch{
			ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
				lists++
				list := &strangeList{Items: []strange{*newStrange()}}
				list.ResourceVersion = fmt.Sprint(100 / lists) // the second one shows a server that went back
				return list, nil
			},
			WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
				if lists == 1 {
					return nil, apierrors.NewResourceExpired("gone")
				}
				return watch.NewProxyWatcher(make(chan watch.Event)), nil
			},
		}
		inf, err := informer.NewFrom(src, informer.Options[*strange]{WatchList: informer.WatchListOff, ErrorHandler: ignore})
		must(t, err)
		var r informertest.Recorder[*strange]
		_, err = inf.AddWatcher(&r, informer.WatcherOptions{})
		must(t, err)
		informertest.Run(t, inf)
		sleepBubble(time.Minute)
		r.Expect(t, "added default/a", "updated default/a")
	})
}

// strange has a field that DeepEqual cannot read.
type strange struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	hidden int
}

func (s *strange) DeepCopyObject() runtime.Object { c := *s; return &c }

type strangeList struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []strange
}

func (l *strangeList) DeepCopyObject() runtime.Object { c := *l; return &c }
