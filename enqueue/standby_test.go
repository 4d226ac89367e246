package enqueue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/enqueue"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
)

// standby is a program whose controller waits for its election.
type standby struct {
	*program
	elect func()
}

func newStandby(t *testing.T, pods ...*corev1.Pod) standby {
	elected := make(chan struct{})
	p := newProgram(t, pods...)
	p.opts.Elected = elected
	return standby{p, sync.OnceFunc(func() { close(elected) })}
}

func changed(pod *corev1.Pod) { pod.Labels = map[string]string{"changed": ""} }

func own(pod *corev1.Pod) []key {
	return []key{{Namespace: pod.Namespace, Name: pod.Name}}
}

// watchers checks how many watchers the informer has.
func (s standby) watchers(want int) {
	s.t.Helper()
	if all := s.pods.Health().Watchers; len(all) != want {
		s.t.Errorf("the informer has %d watchers, want %d: %v", len(all), want, all)
	}
}

func (s standby) health() enqueue.Health { return s.controller.Health() }

func TestAStandbyReconcilesNothingBeforeItIsElected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStandby(t, pod("a"), pod("b"), pod("c"))
		s.start()
		s.source.Apply(pod("d"))
		s.source.Apply(pod("b", changed))
		s.delete("a")
		s.delete("c")
		s.source.Apply(pod("c"))
		s.delete("c") // a second time: its key is kept once
		s.called()
		if h := s.health(); !h.Standby || h.Queued != 2 || h.Deletes != 2 || h.Dropped != 0 {
			t.Errorf("on standby, Health is %+v, want 2 keys", h)
		}
		if err := s.group.Ready(); err != nil {
			t.Errorf("a controller on standby is not ready: %v", err)
		}
		s.watchers(1)
		s.tombstones(2)

		s.elect()
		s.rest()
		s.called("a", "b", "c", "d")
		if h := s.health(); h.Standby || h.Queued != 0 || h.Deletes != 0 || h.Succeeded != 4 {
			t.Errorf("after the election, Health is %+v", h)
		}
		s.watchers(1)
		s.tombstones(0)

		s.source.Apply(pod("b"))
		s.delete("d")
		s.called("a", "b", "b", "c", "d", "d")
	})
}

// Two sources lead to each key, and a call is quicker than the second source.
func TestAKeyToWhichSeveralSourcesLeadIsReconciledOnceAfterTheElection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStandby(t, pod("a"), pod("b"))
		s.sources = func(pods *podInformer) []enqueue.Source[key] {
			return []enqueue.Source[key]{enqueue.For(pods), enqueue.Watches(pods, func(_ context.Context, pod *corev1.Pod) ([]key, error) {
				time.Sleep(time.Second)
				return own(pod), nil
			})}
		}
		s.start()
		s.elect()
		time.Sleep(time.Minute)
		synctest.Wait()
		s.called("a", "b")
		s.watchers(2)
	})
}

func TestAStandbyElectedEarlyReconcilesEachObjectOnce(t *testing.T) {
	for _, when := range []string{"before Run", "before the sync"} {
		testkit.InBubble(t, when, func(t *testing.T) {
			s := newStandby(t, pod("a"), pod("b"))
			s.source.SetFaults(informertest.Faults{HoldLists: true, RejectWatchList: true})
			if when == "before Run" {
				s.elect()
			}
			s.start()
			s.elect()
			s.rest()
			s.called()
			if h := s.health(); h.Synced || !h.Standby {
				t.Errorf("before the sync, Health is %+v", h)
			}
			s.source.Heal()
			s.rest()
			s.called("a", "b")
			s.watchers(1)
		})
	}
}

func TestAStandbyDropsTheOldestDeletesBeyondItsBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStandby(t, pod("a"), pod("b"), pod("c"), pod("d"), pod("e"))
		var reports testkit.ErrorLog
		s.opts.StandbyDeletes, s.opts.ErrorHandler = 2, reports.Handle
		s.start()
		for i, name := range []string{"a", "b", "c", "d", "e"} {
			s.delete(name)
			s.tombstones(min(i+1, 2))
		}
		if h := s.health(); h.Dropped != 3 || h.Queued != 2 || h.Deletes != 2 {
			t.Errorf("Health is %+v, want 3 dropped keys and 2 kept", h)
		}
		if reported := reports.Take(); len(reported) != 1 || !errors.Is(reported[0], enqueue.ErrStandbyDeletesDropped) || !strings.Contains(reported[0].Error(), "website") {
			t.Errorf("reported %v, want ErrStandbyDeletesDropped once, with the name of the controller", reported)
		}
		s.elect()
		s.rest()
		s.called("d", "e")
		s.tombstones(0)
		s.source.Apply(pod("f"))
		for range 3 { // no standby any more
			s.delete("f")
			s.source.Apply(pod("f"))
		}
		if h, reported := s.health(), reports.Take(); h.Dropped != 3 || len(reported) > 0 {
			t.Errorf("the leader has dropped keys: %+v, reported %v", h, reported)
		}
	})
}

func TestAKeyOfAStandbyIsAsOldAsItsLastDelete(t *testing.T) {
	for _, times := range []int{1, 3000} {
		testkit.InBubble(t, fmt.Sprint("deleted again ", times), func(t *testing.T) {
			s := newStandby(t, pod("a"), pod("b"), pod("c"))
			s.opts.StandbyDeletes = 2
			s.start()
			s.delete("b")
			for range times {
				s.source.Apply(pod("b"))
				_, err := s.source.Delete(key{Namespace: "ns", Name: "b"})
				testkit.Must(s.t, err)
				synctest.Wait()
			}
			s.delete("a")
			s.source.Apply(pod("b"))
			s.delete("b")
			if h := s.health(); h.Queued != 2 || h.Deletes != 2 || h.Dropped != 0 {
				t.Errorf("Health is %+v, want two keys and deletes", h)
			}
			s.delete("c") // drops a
			s.tombstones(2)
			s.elect()
			s.rest()
			s.called("b", "c")
			s.tombstones(0)
		})
	}
}

// Each of these is a way for the function of a Watches to fail for one object while all objects
// are delivered.
func TestAWatchesThatFailsAfterTheElectionHoldsUpNoOtherObject(t *testing.T) {
	for name, test := range map[string]struct {
		fail func() error
		once bool // no further attempt follows
	}{
		"an error":                   {func() error { return errors.New("the index cannot be read") }, false},
		"a panic":                    {func() error { panic("oh") }, false},
		"an error that is permanent": {func() error { return informer.ErrPermanent }, true},
	} {
		testkit.InBubble(t, name, func(t *testing.T) {
			s := newStandby(t, pod("a"), pod("b"), pod("c"))
			var broken atomic.Bool
			broken.Store(true)
			s.watches(informer.WatcherOptions{RecoverPanics: true}, func(_ context.Context, pod *corev1.Pod) ([]key, error) {
				if pod.Name == "b" && broken.Load() {
					return nil, test.fail()
				}
				return own(pod), nil
			})
			s.start()
			s.elect()
			time.Sleep(time.Hour)
			s.called("a", "c")
			if test.once {
				s.watchers(1)
				return
			}
			s.watchers(2) // one still tries
			broken.Store(false)
			time.Sleep(2 * time.Minute)
			s.called("a", "b", "c")
			s.watchers(1)
		})
	}
}

func TestAnObjectDeletedWhileItsReplayFailsIsNotTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStandby(t, pod("a"), pod("b"))
		var broken atomic.Bool
		broken.Store(true)
		s.watches(informer.WatcherOptions{}, func(_ context.Context, pod *corev1.Pod) ([]key, error) {
			if broken.Load() && pod.Name == "b" {
				return nil, errors.New("the index cannot be read")
			}
			return own(pod), nil
		})
		s.start()
		s.elect()
		s.rest()
		s.watchers(2)
		s.delete("b")
		time.Sleep(2 * time.Minute)
		s.watchers(1)
		broken.Store(false)
		time.Sleep(2 * time.Minute)
		s.called("a", "b") // b because of its delete, which the feed gets
	})
}

// The function of the Watches blocks for the first object, so that the rest happens during the
// replay.
func TestChangesDuringTheReplayAreReconciled(t *testing.T) {
	for _, workers := range []int{1, 4} {
		testkit.InBubble(t, fmt.Sprint(workers, " workers"), func(t *testing.T) {
			s := newStandby(t, pod("a"), pod("b"), pod("c"))
			var slow atomic.Bool
			resume := make(chan struct{})
			s.watches(informer.WatcherOptions{Workers: workers}, func(ctx context.Context, pod *corev1.Pod) ([]key, error) {
				if slow.CompareAndSwap(true, false) {
					<-resume
				}
				return own(pod), nil
			})
			s.start()
			slow.Store(true)
			s.elect()
			s.rest()
			if h := s.health(); h.Standby {
				t.Error("still on standby after the election")
			}
			s.called()
			s.delete("c")
			s.source.Apply(pod("b", changed))
			s.source.Apply(pod("d"))
			s.rest()
			close(resume)
			s.rest()
			s.mu.Lock()
			names := slices.Compact(slices.Sorted(slices.Values(s.calls)))
			s.mu.Unlock()
			if want := []string{"a", "b", "c", "d"}; !slices.Equal(names, want) {
				t.Errorf("reconciled %v, want %v", names, want)
			}
			s.watchers(1)
			s.tombstones(0)
		})
	}
}

// Each of these ends the controller while it is on standby, or while all objects are delivered.
func TestAStandbyThatEndsMakesNoCall(t *testing.T) {
	for name, end := range map[string]func(s standby){
		"its ctx ends":  func(s standby) { s.stop() },
		"it is removed": func(s standby) { testkit.Must(s.t, s.group.Remove(s.controller)) },
	} {
		for _, replaying := range []bool{false, true} {
			testkit.InBubble(t, fmt.Sprint(name, ", during the replay ", replaying), func(t *testing.T) {
				s := newStandby(t, pod("a"), pod("b"))
				s.opts.DrainTimeout = time.Minute // in which no call begins
				var block atomic.Bool
				s.watches(informer.WatcherOptions{}, func(ctx context.Context, pod *corev1.Pod) ([]key, error) {
					if block.Load() {
						<-ctx.Done()
						return nil, ctx.Err()
					}
					return own(pod), nil
				})
				s.start()
				s.delete("a")
				block.Store(true)
				if replaying {
					s.elect()
					s.rest()
					s.watchers(2)
				}
				end(s)
				s.elect()
				s.rest()
				s.called()
				if h := s.health(); !h.Stopped {
					t.Errorf("Health is %+v, want stopped", h)
				}
				if name != "its ctx ends" {
					s.watchers(0)
					return
				}
				block.Store(false)
				s.start() // over the same Durable, elected at once
				s.called("a", "b")
				time.Sleep(time.Minute) // for so long, another watcher could inherit the delete
				s.tombstones(0)
			})
		}
	}
}

// Such a call would be made by a program that is the leader no longer.
func TestAControllerWhoseCtxEndsWithItsElectionMakesNoCall(t *testing.T) {
	for range 20 { // a select chooses at random
		synctest.Test(t, func(t *testing.T) {
			elected := make(chan struct{})
			close(elected)
			r := prepare(t, enqueue.Options{Elected: elected, DrainTimeout: time.Minute}, returning(), pod("a"))
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			r.run(ctx)
			r.wait()
			r.expect()
		})
	}
}

func TestAControllerReportsThatItsInformerStoppedBeforeAllObjectsWereDelivered(t *testing.T) {
	for _, replaying := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			elected := make(chan struct{})
			r := prepare(t, enqueue.Options{Elected: elected}, returning(), pod("a"))
			r.keys = func(ctx context.Context, pod *corev1.Pod) ([]string, error) {
				if replaying {
					<-ctx.Done()
				}
				return []string{pod.Name}, ctx.Err()
			}
			r.run(t.Context())
			if replaying {
				close(elected)
				synctest.Wait()
			}
			r.feed()
			synctest.Wait()
			if !replaying {
				close(elected)
			}
			if err := <-r.done; !errors.Is(err, informer.ErrStopped) {
				t.Errorf("during the replay %v: Run returned %v, want ErrStopped", replaying, err)
			}
			r.expect()
		})
	}
}
