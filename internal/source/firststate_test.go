package source_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/share"
)

// endless is a source whose streams of the first state never end: a proxy drops the bookmark that marks the end, or
// the server marks it with a bookmark like any other. again is added to a stream at each update of an object.
type endless struct {
	*fakeSource
	plain bool // the bookmark comes, without its mark
	again bool // an update of an object comes as the first state of it
}

func (s endless) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	inner, err := s.fakeSource.WatchWithContext(ctx, opts)
	if err != nil || opts.SendInitialEvents == nil {
		return inner, err
	}
	return remake(inner, func(e watch.Event) (watch.Event, bool) {
		if e.Object == nil {
			return e, false
		}
		obj := e.Object.DeepCopyObject().(metav1.Object)
		if s.again && e.Type == watch.Modified {
			e.Type = watch.Added
			obj.SetResourceVersion("1")
		}
		marked := obj.GetAnnotations()[metav1.InitialEventsAnnotationKey] != ""
		obj.SetAnnotations(nil)
		e.Object = obj.(apiruntime.Object)
		return e, !marked || s.plain
	}), nil
}

// remake returns a watch whose events are made of those of another watch. Unlike watch.Filter, it leaves no goroutine.
func remake(inner watch.Interface, change func(watch.Event) (watch.Event, bool)) watch.Interface {
	events := make(chan watch.Event)
	w := watch.NewProxyWatcher(events)
	go func() {
		defer close(events)
		defer inner.Stop()
		for open := true; open; {
			var e watch.Event
			select {
			case e, open = <-inner.ResultChan():
			case <-w.StopChan():
				return
			}
			if e, passes := change(e); open && passes {
				select {
				case events <- e:
				case <-w.StopChan():
					return
				}
			}
		}
	}()
	return w
}

// traffic is what happens at a source each time.
var traffic = map[string]func(src *fakeSource, n int){
	"nothing":   func(*fakeSource, int) {},
	"updates":   func(src *fakeSource, n int) { src.Apply(object("b", strconv.Itoa(n))) },
	"adds":      func(src *fakeSource, n int) { src.Apply(object("n"+strconv.Itoa(n), "1")) },
	"deletes":   func(src *fakeSource, n int) { src.Apply(object("d", strconv.Itoa(n))); _, _ = src.Delete(keyOf("d")) },
	"bookmarks": func(src *fakeSource, _ int) { src.Bookmark() },
}

// intakes are options with which the first state is taken in, each in its own way.
func intakes() map[string]options {
	return map[string]options{
		"whole":     {},
		"early":     {Intake: informer.IntakeEarly},
		"transform": {Transform: informer.StripManagedFields[configMap]},
		"share":     {Share: share.New()},
		"own store": {Store: informertest.NewStore(nil), WatchList: informer.WatchListOn},
	}
}

// A stream that never ends is replaced by a list, whatever it brings meanwhile.
func TestNoTrafficKeepsAStreamFromBeingReplacedByAList(t *testing.T) {
	for what, happens := range traffic {
		for _, pause := range []time.Duration{200 * time.Millisecond, 5 * time.Second} {
			for way := range intakes() {
				for _, plain := range []bool{false, true} {
					t.Run(what+" each "+pause.String()+"/"+way+"/"+strconv.FormatBool(plain), func(t *testing.T) {
						eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
							src := informertest.NewSource(object("a", "1"), object("b", "1"))
							opts := intakes()[way]
							opts.Queue = queue
							inf := newInformer(t, endless{fakeSource: src, plain: plain, again: what == "updates"}, opts)
							start(t, inf)
							disturb(t, src, pause, happens)
							within, cancel := context.WithTimeout(t.Context(), 50*time.Second)
							defer cancel()
							if err := inf.WaitForSync(within); err != nil {
								t.Errorf("after 50 s: %v; the source was asked for: %s", err, asked(src, 0))
							}
						})
					})
				}
			}
		}
	}
}

// disturb calls happens each pause, until the end of the test.
func disturb(t *testing.T, src *fakeSource, pause time.Duration, happens func(*fakeSource, int)) {
	runUntilTheEnd(t, func(ctx context.Context) {
		for n := 0; ctx.Err() == nil; n++ {
			sleepUntil(ctx, pause)
			happens(src, n)
		}
	})
}

func TestTheDropInReplacesAStreamThatNeverEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(object("a", "1"))
		s := informer.ClientGo{}.NewSharedIndexInformer(endless{fakeSource: src}, object("", ""), 0, nil)
		runUntilTheEnd(t, s.RunWithContext)
		disturb(t, src, time.Second, traffic["adds"])
		sleepBubble(50 * time.Second)
		if !s.HasSynced() {
			t.Errorf("it has not synced; the source was asked for: %s", asked(src, 0))
		}
	})
}

// Before the list, the reason is known.
func TestAStreamThatDoesNotEndIsShown(t *testing.T) {
	for _, intake := range []informer.IntakeMode{informer.IntakeWhole, informer.IntakeEarly} {
		synctest.Test(t, func(t *testing.T) {
			const reason = "watch ConfigMap: the end of the first state has not come for "
			src := informertest.NewSource(object("a", "1"))
			inf := newInformer(t, endless{fakeSource: src}, options{Intake: intake})
			start(t, inf)
			disturb(t, src, 2*time.Second, traffic["adds"])
			sleepBubble(9 * time.Second)
			if h := inf.Health(); h.SourceError != nil {
				t.Errorf("after 9 s: %v", h.SourceError)
			}
			err := inf.WaitForSync(within(t, 2*time.Second))
			if h := inf.Health(); err == nil || !strings.Contains(err.Error(), reason+"11s") || h.SourceError == nil || h.SourceError.Error() != reason+"11s" || h.SourceFailures != 0 {
				t.Errorf("after 11 s, WaitForSync returns %v, Health has %v", err, h.SourceError)
			}
			if err := inf.WaitForSync(within(t, time.Minute)); err != nil {
				t.Fatal(err)
			}
			if h := inf.Health(); h.SourceError != nil {
				t.Errorf("when it has synced: %v", h.SourceError)
			}
		})
	}
}

// A first state whose objects come slowly is not replaced, in the usual order and in that of versions.
func TestAFirstStateThatComesSlowlyIsNotReplaced(t *testing.T) {
	for name, versions := range map[string][]string{
		"by name":    {"50", "10", "49", "11", "48", "12", "47", "13", "46", "14", "45", "15"},
		"by version": {"10", "11", "12", "13"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := open()
				p := startAlone(t, streaming(), "", watches(w))
				var names []string
				for n, version := range versions {
					time.Sleep(9 * time.Second)
					names = append(names, string(rune('a'+n)))
					if !w.send(added(names[n], version)) {
						t.Fatalf("the stream was stopped before %s", version)
					}
					synctest.Wait()
				}
				w.send(complete("60"))
				p.expect(lines("stream"), lines("list ["+strings.Join(names, " ")+`] at "60"`), nil)
			})
		})
	}
}
