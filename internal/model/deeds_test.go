package model_test

import (
	"slices"
	"strings"
	"syscall"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
)

// deeds are the possible operations. A higher weight makes an operation more frequent. The
// corpus of FuzzModel refers to them by index, so their order must not change.
var deeds []struct {
	weight int
	do     func(*torture, deed)
}

func init() { // in init, because some deeds refer to the table
	deeds = []struct {
		weight int
		do     func(*torture, deed)
	}{
		{20, (*torture).writeOne},
		{6, (*torture).burst},
		{7, (*torture).deleteOne},
		{5, (*torture).recreate},
		{5, (*torture).relist},
		{3, (*torture).disconnect},
		{3, (*torture).silence},
		{2, (*torture).outage},
		{2, (*torture).bookmark},
		{1, (*torture).compact},
		{10, (*torture).pause},
		{6, (*torture).join},
		{3, (*torture).removeOne},
		{6, (*torture).block},
		{5, (*torture).unblock},
		{7, (*torture).fail},
		{3, (*torture).panics},
		{2, (*torture).slow},
		{5, (*torture).storeFails},
		{2, (*torture).storeRefuses},
		{2, (*torture).storeHangs},
		{2, (*torture).storeSlow},
		{4, (*torture).storeHeals},
		{4, (*torture).waitForVersion},
		{4, (*torture).waitForObject},
		{4, (*torture).look},
		{3, (*torture).settle},
		{2, (*torture).stop},
		{1, (*torture).crash},
		{5, (*torture).setNamespaces},
	}
}

// The source.

func (w *torture) writeOne(d deed) {
	i := int(d.a)
	w.write(i, d.b%8 == 1)
	w.say("write %s: %v", nameOf(i), w.now(i))
}

func (w *torture) now(i int) presence {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.current[keyNamed(nameOf(i))]
}

func (w *torture) burst(d deed) {
	n := 2 + int(d.a%40)
	w.say("%d writes and deletes, from %s, version %s", n, nameOf(int(d.b)), w.src.ResourceVersion())
	for i := range n {
		which := int(d.b) + i*(1+int(d.b)/64)
		if i%7 == 5 {
			w.remove(which)
		} else {
			w.write(which, false)
		}
	}
}

func (w *torture) deleteOne(d deed) {
	w.say("delete %s: %v", nameOf(int(d.a)), w.now(int(d.a)))
	w.remove(int(d.a))
}

func (w *torture) recreate(d deed) {
	i := int(d.a)
	before := w.now(i)
	w.remove(i)
	w.write(i, d.b%8 == 1)
	w.say("delete and create %s: %v is %v", nameOf(i), before, w.now(i))
}

// relist makes the informer miss some changes and then get a 410 for its version.
func (w *torture) relist(d deed) {
	w.say("410, and %d changes are missed from %s", d.a%5, nameOf(int(d.b)))
	w.troubled.Store(true)
	w.mute(true)
	for i := range int(d.a % 5) {
		which := int(d.b) + i
		switch (int(d.b)/8 + i) % 3 {
		case 0:
			w.remove(which)
			w.write(which, false)
		case 1:
			w.write(which, false)
		default:
			w.remove(which)
		}
	}
	w.src.Expire()
	w.mute(false)
}

// mute mutes the source, or not. Its other faults are those of the setting.
func (w *torture) mute(on bool) {
	w.src.SetFaults(informertest.Faults{
		RejectWatchList: w.source == rejecting, IgnoreWatchList: w.source == silent, RefuseExpired: w.refuses, Mute: on,
	})
}

func (w *torture) disconnect(deed) {
	w.say("disconnect")
	w.troubled.Store(true)
	w.src.Disconnect()
}

func (w *torture) silence(d deed) {
	w.say("silence %v", d.a%3 > 0)
	w.troubled.Store(true)
	w.mute(d.a%3 > 0)
}

func (w *torture) outage(d deed) {
	err := []error{
		testkit.Dialing(syscall.ECONNREFUSED),
		apierrors.NewInternalError(errInjected),
		apierrors.NewTooManyRequests("on purpose", 1),
		testkit.Forbidden("configmaps"),
	}[d.a%4]
	n := 1 + int(d.b%5)
	w.say("outage of %d requests: %v", n, err)
	w.troubled.Store(true)
	w.src.Fail("list", err, n)
	w.src.Fail("watch", err, n)
	w.src.Disconnect()
}

func (w *torture) bookmark(deed) {
	w.say("bookmark %s", w.src.ResourceVersion())
	w.src.Bookmark()
}

func (w *torture) compact(deed) {
	w.say("compact")
	w.troubled.Store(true)
	w.src.Compact()
}

func (w *torture) pause(d deed) {
	span := []time.Duration{time.Millisecond, 0, 30 * time.Millisecond, 150 * time.Millisecond, 6 * time.Second, 25 * time.Second, 90 * time.Second}[d.a%7]
	w.say("%v pass", span)
	sleepBubble(span)
	w.life.checkResyncs()
}

// setNamespaces changes the set of namespaces, if the informer is one over several.
func (w *torture) setNamespaces(d deed) {
	if !w.split {
		return
	}
	w.in = [][]string{namespaces, namespaces[:1], namespaces[1:], {}, {namespaces[1], namespaces[0]}, namespaces}[d.a%6]
	w.say("namespaces %q", w.in)
	w.life.leave(w.in)
	if err := w.life.inf.SetNamespaces(w.in); err != nil {
		w.problem("SetNamespaces: %v", err)
	}
}

// leave notes which namespaces are not read.
func (l *incarnation) leave(set []string) {
	for _, namespace := range namespaces {
		if slices.Contains(set, namespace) {
			continue
		}
		l.mu.Lock()
		l.left[namespace] = true
		l.mu.Unlock()
		l.t.mu.Lock()
		l.t.absent[namespace] = true
		l.t.mu.Unlock()
	}
}

// isAbsent reports whether the namespace of an object was ever not read.
func (w *torture) isAbsent(key string) bool {
	namespace, _, _ := strings.Cut(key, "/")
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.absent[namespace]
}

// The watchers.

func (w *torture) join(d deed) {
	if len(w.life.pupils) > 12 {
		return
	}
	if d.a%4 == 3 {
		if p := w.pick(d.b); p != nil {
			p.mu.Lock()
			p.trouble.brings = true
			p.mu.Unlock()
			w.say("%s will add another watcher in its next call", p.name)
			return
		}
	}
	p := w.life.add(newKind(d.b), w.quiet && !d.atOnce)
	w.say("%s joins: %v", p.name, p.pupilKind)
}

// addLater adds another watcher during a call of one.
func (l *incarnation) addLater() {
	_, err := l.inf.AddWatcher(informer.WatcherFuncs[configMap]{}, informer.WatcherOptions{Name: "guest"})
	if err != nil && !l.stopping.Load() {
		l.t.problem("AddWatcher in a call: %v", err) // promise 1
	}
}

// pick returns a watcher that is there, or nil.
func (w *torture) pick(b byte) *pupil {
	all := slices.DeleteFunc(slices.Clone(w.life.pupils), func(p *pupil) bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.removed || p.witness
	})
	if len(all) == 0 {
		return nil
	}
	return all[int(b)%len(all)]
}

func (w *torture) removeOne(d deed) {
	p := w.pick(d.a)
	switch {
	case p == nil:
	case d.b%3 == 0:
		w.say("%s will leave in its next call", p.name)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.trouble.leaves = true
	default:
		synctest.Wait()
		w.quiet = true
		p.audit()
		w.say("%s leaves", p.name)
		p.leave()
	}
}

func (w *torture) upset(d deed, what string, change func(*pupil, *trouble)) {
	p := w.pick(d.a)
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	w.say("%s: %s", p.name, what)
	p.calm = time.Now()
	change(p, &p.trouble)
}

func (w *torture) block(d deed) {
	w.upset(d, "blocks", func(_ *pupil, t *trouble) {
		if t.blocked == nil {
			t.blocked = make(chan struct{})
		}
	})
}

func (w *torture) unblock(d deed) {
	w.upset(d, "is well", func(_ *pupil, t *trouble) { t.relieve() })
}

func (d *trouble) relieve() {
	if d.blocked != nil {
		close(d.blocked)
	}
	*d = trouble{}
}

func (w *torture) fail(d deed) {
	w.upset(d, "fails", func(p *pupil, t *trouble) {
		if !p.handler {
			t.fails, t.permanent = 1+int(d.b%6), d.b/8%4 == 3
		}
	})
}

func (w *torture) panics(d deed) {
	w.upset(d, "panics", func(p *pupil, t *trouble) {
		if p.opts.RecoverPanics {
			t.panics = 1 + int(d.b%3)
		}
	})
}

func (w *torture) slow(d deed) {
	w.upset(d, "is slow", func(_ *pupil, t *trouble) { t.slow = time.Duration(1+d.b%30) * time.Millisecond })
}

// The store.

func (w *torture) storeFault(d deed, refuse bool) {
	f := &modelFault{
		op:    []string{"", "add", "update", "delete", "get", ""}[d.a%6],
		after: !refuse && d.b%2 > 0, refuse: refuse, first: int(d.b/2) % 4, times: []int{1, 2, 4, 30}[d.b/8%4],
	}
	if w.store == durableStore && f.op != "get" {
		f.op = []string{"apply", "apply", "apply", "forget", "get", "scan", "resume", "tombstones"}[d.a%8]
	}
	if refuse && (f.op == "scan" || f.op == "resume" || f.op == "tombstones" || f.op == "forget") {
		f.op = "apply"
	}
	if w.life.faults.trouble != nil {
		w.say("the store fails: %+v", *f)
		w.life.faults.add(f)
	}
}

func (w *torture) storeFails(d deed)   { w.storeFault(d, false) }
func (w *torture) storeRefuses(d deed) { w.storeFault(d, true) }

func (w *torture) storeHangs(deed) {
	m := &w.life.faults
	if m.trouble == nil || m.release != nil {
		return
	}
	w.say("the store hangs")
	release := m.trouble.Hang()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.release, m.ever, m.since = release, true, time.Now()
}

func (w *torture) storeSlow(d deed) {
	m := &w.life.faults
	if m.trouble == nil {
		return
	}
	span := time.Duration(1+d.a%100) * time.Millisecond
	w.say("the store takes %v", span)
	m.trouble.Delay(span)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.slow, m.ever, m.since = true, true, time.Now()
}

func (w *torture) storeHeals(deed) {
	w.say("the store is well")
	w.life.faults.heal()
}
