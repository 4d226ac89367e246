package chaos_test

import (
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/customcacheinformer/informer/e2e/internal/stage"
)

// fault is a failure that a test plays. It is over when play returns.
type fault struct {
	name string
	play func(*episode)
	// noticed selects the followers that must report the fault, and show it in Health while it
	// lasts; nil selects none.
	noticed func(scope) bool
}

func everybody(scope) bool { return true }

func faults() []fault {
	all := []fault{
		{"connections cut", (*episode).cut, nil},
		{"connections refused", (*episode).refuse, everybody},
		{"connections slow", (*episode).slow, nil},
		{"connections half-open", (*episode).silence, nil},
		{"API server restarted", (*episode).restart, everybody},
		{"etcd restored to an older state", (*episode).restoreOlder, everybody},
		{"etcd restored behind a gateway", (*episode).restoreBehindGateway, everybody},
		{"429 with Retry-After", under(throttling), nil},
		{"500, 503, 504", until(func() *plan { return refusing(500, 503, 504) }), everybody},
		{"401, 403", until(func() *plan { return refusing(http.StatusUnauthorized, http.StatusForbidden) }), everybody},
		{"later pages fail or expire", until(breakingPages), func(s scope) bool { return s.name == paged }},
		{"lists garbled or cut off", under(breakingLists), nil},
		{"watches broken off amid an event", under(breakingEvents), nil},
		{"malformed objects", under(malforming), nil},
		{"bookmarks without a version", under(unversioned), nil},
		{"objects of another kind, and a list", (*episode).lie, nil},
		{"huge objects", under(inflating), nil},
		{"history expired", (*episode).expire, nil},
		{"definition deleted and re-created", (*episode).vanish, func(s scope) bool { return s.name == comets || s.name == beta }},
		{"version not served", (*episode).unserve, func(s scope) bool { return s.name == beta }},
		{"program stopped or crashed", (*episode).reincarnate, nil},
	}
	if *known {
		all = append(all,
			fault{"etcd restored and overtaken", (*episode).restoreOvertaken, everybody})
	}
	return all
}

// hold makes the fault last for a while.
func (e *episode) hold() { stage.Pass(e.ctx, time.Duration(300+e.random.IntN(1200))*time.Millisecond) }

// under plays a plan for a while.
func under(newPlan func() *plan) func(*episode) {
	return func(e *episode) { e.under(newPlan(), e.hold) }
}

// until plays a plan until every follower that must notice it has noticed it.
func until(newPlan func() *plan) func(*episode) {
	return func(e *episode) { e.under(newPlan(), e.awaitNoticed) }
}

func (e *episode) under(p *plan, last func()) {
	e.front.plan.Store(p)
	e.breakOff()
	last()
	e.front.plan.Store(nil)
	e.front.end()
}

// breakOff ends all watches, in one of two ways.
func (e *episode) breakOff() {
	if e.random.IntN(2) == 0 {
		e.front.end()
	} else {
		e.proxy.Cut()
	}
}

func (e *episode) cut() {
	for range 1 + e.random.IntN(5) {
		e.proxy.Cut()
		stage.Pass(e.ctx, time.Duration(e.random.IntN(400))*time.Millisecond)
	}
}

func (e *episode) refuse() {
	e.proxy.Refuse()
	e.awaitNoticed()
	e.OK(e.proxy.Allow())
}

func (e *episode) slow() {
	e.proxy.Slow(time.Duration(e.random.IntN(40))*time.Millisecond, 64<<10)
	e.proxy.Cut()
	e.hold()
	e.hold()
	e.proxy.Slow(0, 0)
}

// silence is over at once: the informers only have to notice it.
func (e *episode) silence() { e.proxy.Silence() }

func (e *episode) restart() {
	func() {
		e.pause.Lock()
		defer e.pause.Unlock()
		e.proxy.Refuse()
		e.restarted(e.server.BackUp)
	}()
	e.awaitNoticed()
	e.OK(e.proxy.Allow())
}

// restoreOlder stops all writing until the informers can reach the server again. A restored
// server that has made as many changes as were lost cannot be distinguished from one that was not
// restored.
func (e *episode) restoreOlder() {
	e.lose(func() {
		e.proxy.Refuse()
		e.restarted(e.server.Restore)
		e.awaitNoticed()
		e.OK(e.proxy.Allow())
	})
}

// restoreOvertaken lets the server make more changes after the restore than were lost.
func (e *episode) restoreOvertaken() {
	e.lose(func() {
		e.proxy.Refuse()
		e.restarted(e.server.Restore)
		e.awaitNoticed()
		before := e.written.Load()
		for e.written.Load() < 2*before {
			e.OK(e.write(e.kinds[1], e.random))
		}
		e.OK(e.proxy.Allow())
	})
}

// restoreBehindGateway is like restoreOlder, but with a gateway in front of the server that
// can be reached and answers that the server cannot.
func (e *episode) restoreBehindGateway() {
	e.lose(func() {
		e.front.plan.Store(refusing(http.StatusServiceUnavailable))
		e.front.end()
		e.awaitNoticed()
		e.restarted(e.server.Restore)
		e.front.plan.Store(nil)
	})
}

// lose makes changes and then calls them, which loses these changes, while all other writing
// is stopped. Before that it waits until every informer knows the last change. An informer
// notices a restore only while the server has not passed the version that the informer knows,
// so that version must be the last one that is lost.
func (e *episode) lose(them func()) {
	e.pause.Lock()
	defer e.pause.Unlock()
	for range 20 {
		for _, k := range e.kinds {
			e.OK(e.write(k, e.random))
		}
	}
	for _, k := range e.kinds {
		e.OK(e.put(k, k.common(e.written.Add(1))))
	}
	e.awaitEqual()
	them()
}

func (e *episode) expire() { e.forget(e.kinds[e.random.IntN(len(e.kinds))]) }

// forget makes the server forget the history of a kind.
func (e *episode) forget(k *kind) {
	e.pause.Lock()
	defer e.pause.Unlock()
	e.OK(e.server.Expire(e.ctx, k.resource()))
}

// lie sends events for an object that does not exist. Only a list can show that it is missing.
func (e *episode) lie() {
	e.under(lying(), e.hold)
	truth := time.Now()
	e.under(&plan{answer: forgetting}, func() {
		e.Await(e.name+": some informers do not list", func() bool {
			return !slices.ContainsFunc(e.followers, func(f follower) bool { return !f.health().LastList.After(truth) })
		})
	})
}

// vanish deletes a definition with all its objects, and installs another one of that name.
func (e *episode) vanish() {
	e.pause.Lock()
	defer e.pause.Unlock()
	k := e.kinds[2]
	crd := k.definition()
	crds := e.crds.ApiextensionsV1().CustomResourceDefinitions()
	e.OK(crds.Delete(e.ctx, crd.Name, metav1.DeleteOptions{}))
	e.Await("the definition is still there", func() bool {
		_, err := crds.Get(e.ctx, crd.Name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	e.awaitNoticed()
	_, err := e.server.InstallDefinition(e.ctx, crd)
	e.OK(err)
	e.AwaitServed(e.client, k.resources()...)
	for range 20 {
		e.OK(e.write(k, e.random))
	}
}

// unserve makes the server stop serving one version for a while.
func (e *episode) unserve() {
	e.pause.Lock()
	defer e.pause.Unlock()
	k := e.kinds[2]
	serve := func(served bool) {
		crds := e.crds.ApiextensionsV1().CustomResourceDefinitions()
		e.OK(retry.RetryOnConflict(retry.DefaultRetry, func() error {
			crd, err := crds.Get(e.ctx, k.plural()+"."+group, metav1.GetOptions{})
			if err != nil {
				return err
			}
			crd.Spec.Versions[1].Served = served
			_, err = crds.Update(e.ctx, crd, metav1.UpdateOptions{})
			return err
		}))
	}
	serve(false)
	e.awaitNoticed()
	serve(true)
	e.AwaitServed(e.client, k.resources()...)
}

// reincarnate stops or crashes the informers over durable stores, and starts new ones over the
// same stores. Another fault may be active while they start.
func (e *episode) reincarnate() {
	var stopped []follower
	for _, f := range e.followers {
		if !f.durable() {
			continue
		}
		if e.random.IntN(2) == 0 {
			f.crash()
		} else {
			f.stop()
		}
		stopped = append(stopped, f)
	}
	e.hold()
	plans := []*plan{nil, nil, refusing(500, 503, 403), throttling(), {answer: forgetting}, breakingLists(), breakingEvents(), malforming()}
	e.front.plan.Store(plans[e.random.IntN(len(plans))])
	if e.random.IntN(4) == 0 {
		e.expire()
	}
	for _, f := range stopped {
		f.start()
	}
	e.hold()
	e.front.plan.Store(nil)
	e.front.end()
}

// pick returns the faults to play, in random order.
func pick(random *rand.Rand) []fault {
	var all []fault
	for _, f := range faults() {
		if *onlyFault == "" || *onlyFault == f.name {
			all = append(all, f)
		}
	}
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}
