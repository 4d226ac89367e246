package prometheus

import (
	"errors"
	"sync"
	"sync/atomic"

	prom "github.com/prometheus/client_golang/prometheus"

	"github.com/customcacheinformer/informer"
)

// spare is part of the limit for a sweep: if there are more than twice as many informers and
// watchers as the last sweep left, and spare more, the Observer sweeps without waiting for a
// scrape.
const spare = 100

// series holds the metrics that the Observer updates, by their labels. An event costs one look-up
// here and the counting. The vectors only make series; the Observer does not look series up in
// them, and Collect does not collect them. While a vector is collected, a goroutine that needs a
// new series would wait for the reader.
type series struct {
	health  func() map[string]informer.MemberHealth
	vectors vectors

	mu        sync.RWMutex // protects the fields below, and the contents of informers
	informers map[string]*informerSeries
	births    int // number of entries ever made
	kept      int // number of entries that exist now
	limit     int // if kept exceeds it, a sweep is due
	sweeping  bool
}

// entry holds the series of an informer or a watcher.
type entry struct {
	born int // value of births when it was made
	all  []made
}

type made struct {
	metric prom.Metric
	vector *prom.MetricVec
	labels []string
}

type informerSeries struct {
	entry
	events                 [informer.EventDeleted + 1][informer.OriginLeft + 1]prom.Counter // nil for what does not happen
	lag, lists, watches    prom.Observer
	listOutcomes, outcomes [outcomes]prom.Counter // of lists, and of watches
	watchEvents            prom.Counter
	ops                    map[string]*opSeries
	watchers               map[string]*watcherSeries
}

type watcherSeries struct {
	entry
	handling prom.Observer
}

// opSeries are the series of one operation on the store.
type opSeries struct {
	took            prom.Observer
	errors, retries prom.Counter
	due             atomic.Int64 // failed attempts whose retry was not counted yet
}

func newSeries(health func() map[string]informer.MemberHealth) *series {
	return &series{health: health, vectors: newVectors(), informers: map[string]*informerSeries{}, limit: spare}
}

func (s *series) list(info informer.ListInfo) {
	i := s.informer(info.Informer)
	i.lists.Observe(info.Took.Seconds())
	i.listOutcomes[outcomeOf(info.Err)].Inc()
}

func (s *series) watch(info informer.WatchInfo) {
	i := s.informer(info.Informer)
	i.watches.Observe(info.Took.Seconds())
	i.outcomes[outcomeOf(info.Err)].Inc()
	i.watchEvents.Add(float64(max(0, info.Events)))
}

func (s *series) store(info informer.StoreInfo) { s.op(info.Informer, info.Op).observe(&info) }

func (s *series) apply(info informer.ApplyInfo) {
	i := s.informer(info.Informer)
	if int(info.Type) < len(i.events) && int(info.Origin) < len(i.events[0]) {
		if count := i.events[info.Type][info.Origin]; count != nil {
			count.Inc()
		}
	}
	// If a list shows that an object is gone, it is not known when it was deleted.
	if info.Lag > 0 || info.Type != informer.EventDeleted || info.Origin == informer.OriginWatch {
		i.lag.Observe(info.Lag.Seconds())
	}
}

func (s *series) handled(info informer.HandledInfo) {
	s.watcher(info.Informer, info.Watcher).handling.Observe(info.Took.Seconds())
}

// observe counts an attempt. A successful attempt does not show whether it is a retry, so observe
// keeps count of the retries that are due.
func (o *opSeries) observe(info *informer.StoreInfo) {
	o.took.Observe(info.Took.Seconds())
	if info.Err == nil {
		if o.takeDue() {
			o.retries.Inc()
		}
		return
	}
	o.errors.Inc()
	refused := errors.Is(info.Err, informer.ErrPermanent) // it will not be tried again
	switch {
	case info.Failures > 1:
		o.retries.Inc()
		if refused {
			o.takeDue()
		}
	case !refused:
		o.due.Add(1)
	}
}

// takeDue reports whether a retry was due, and takes it off the count.
func (o *opSeries) takeDue() bool {
	for {
		due := o.due.Load()
		if due == 0 {
			return false
		}
		if o.due.CompareAndSwap(due, due-1) {
			return true
		}
	}
}

// informer returns the series of an informer, and makes them if there are none.
func (s *series) informer(name string) (i *informerSeries) {
	s.mu.RLock()
	i = s.informers[name]
	s.mu.RUnlock()
	if i == nil {
		s.grow(func() { i = s.informerLocked(label(name)) })
	}
	return i
}

// op returns the series of an operation on the store, and makes them if there are none.
func (s *series) op(name, op string) (o *opSeries) {
	s.mu.RLock()
	if i := s.informers[name]; i != nil {
		o = i.ops[op]
	}
	s.mu.RUnlock()
	if o == nil {
		s.grow(func() { o = s.opLocked(s.informerLocked(label(name)), label(name), opLabel(op)) })
	}
	return o
}

// watcher returns the series of a watcher, and makes them if there are none.
func (s *series) watcher(name, watcher string) (w *watcherSeries) {
	s.mu.RLock()
	if i := s.informers[name]; i != nil {
		w = i.watchers[watcher]
	}
	s.mu.RUnlock()
	if w == nil {
		s.grow(func() { w = s.watcherLocked(s.informerLocked(label(name)), label(name), label(watcher)) })
	}
	return w
}

// grow calls f, which may make entries, with the mutex locked. It then sweeps if there are many
// more entries than the last sweep left. It calls health without the mutex, so other goroutines
// can make entries meanwhile.
func (s *series) grow(f func()) {
	s.mu.Lock()
	f()
	mark := s.births
	due := s.kept > s.limit && !s.sweeping
	s.sweeping = s.sweeping || due
	s.mu.Unlock()
	if !due {
		return
	}
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.sweeping = false
	}()
	s.sweep(mark, populationOf(s.health()))
}

func (s *series) informerLocked(name string) *informerSeries {
	if i := s.informers[name]; i != nil {
		return i
	}
	v := &s.vectors
	i := &informerSeries{entry: s.entryLocked(), ops: map[string]*opSeries{}, watchers: map[string]*watcherSeries{}}
	for typ := informer.EventAdded; int(typ) < len(i.events); typ++ {
		for origin := range informer.OriginResync { // no change has this origin
			i.events[typ][origin] = i.counter(v.events, name, typ.String(), origin.String())
		}
	}
	i.events[informer.EventDeleted][informer.OriginLeft] = i.counter(v.events, name, informer.EventDeleted.String(), informer.OriginLeft.String())
	i.lag = i.histogram(v.lag, name)
	i.lists, i.watches = i.histogram(v.lists, name), i.histogram(v.watches, name)
	for o := range outcomes {
		i.listOutcomes[o] = i.counter(v.listOutcomes, name, o.String())
		i.outcomes[o] = i.counter(v.watchOutcomes, name, o.String())
	}
	i.watchEvents = i.counter(v.watchEvents, name)
	s.informers[name] = i
	return i
}

func (s *series) opLocked(i *informerSeries, name, op string) *opSeries {
	if o := i.ops[op]; o != nil {
		return o
	}
	v := &s.vectors
	o := &opSeries{
		took:    i.histogram(v.store, name, op),
		errors:  i.counter(v.storeErrors, name, op),
		retries: i.counter(v.storeRetries, name, op),
	}
	i.ops[op] = o
	return o
}

func (s *series) watcherLocked(i *informerSeries, name, watcher string) *watcherSeries {
	if w := i.watchers[watcher]; w != nil {
		return w
	}
	w := &watcherSeries{entry: s.entryLocked()}
	w.handling = w.histogram(s.vectors.handling, name, watcher)
	i.watchers[watcher] = w
	return w
}

func (s *series) entryLocked() entry {
	s.births++
	s.kept++
	return entry{born: s.births}
}

func (e *entry) counter(vector *prom.CounterVec, labels ...string) prom.Counter {
	c := vector.WithLabelValues(labels...)
	e.all = append(e.all, made{c, vector.MetricVec, labels})
	return c
}

func (e *entry) histogram(vector *prom.HistogramVec, labels ...string) prom.Observer {
	h := vector.WithLabelValues(labels...).(prom.Histogram)
	e.all = append(e.all, made{h, vector.MetricVec, labels})
	return h
}

func (e *entry) drop() {
	for _, m := range e.all {
		m.vector.DeleteLabelValues(m.labels...)
	}
}

// mark returns a mark for sweep. Entries made later are newer than the mark.
func (s *series) mark() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.births
}

// sweep removes the series of informers and watchers that are not in now. It keeps entries made
// after mark: now was read after mark, so they may belong to an informer or a watcher that is
// newer than now. A goroutine that still holds a removed series loses one count.
func (s *series) sweep(mark int, now population) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, i := range s.informers {
		for watcher, w := range i.watchers {
			if now.watchers[watcherName{name, watcher}] == nil && w.born <= mark {
				w.drop()
				delete(i.watchers, watcher)
				s.kept--
			}
		}
		if now.informers[name] == nil && i.born <= mark && len(i.watchers) == 0 {
			i.drop()
			delete(s.informers, name)
			s.kept--
		}
	}
	s.limit = 2*s.kept + spare
}

func (s *series) metrics() []prom.Metric {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var all []prom.Metric
	add := func(e *entry) {
		for _, m := range e.all {
			all = append(all, m.metric)
		}
	}
	for _, i := range s.informers {
		add(&i.entry)
		for _, w := range i.watchers {
			add(&w.entry)
		}
	}
	return all
}
