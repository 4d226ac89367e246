package model_test

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/share"
)

const settingSize = 8

// setting does not change during a sequence. The zero bytes give the simplest setting.
type setting struct {
	queue     informer.QueueKind
	source    sourceKind
	store     storeKind
	intake    informer.IntakeMode
	shared    bool // equal parts of objects are one memory
	transform transformKind
	indexed   bool // the informer has an index of the test
	observed  bool
	split     bool // the informer is one over several namespaces
	refuses   bool // the source refuses a watch from an expired version at once
	drain     time.Duration
	objects   int    // number at the start
	early     int    // number of deeds before Run
	pupils    []byte // the watchers that a process has from its start, see newKind
}

func newSetting(b [settingSize]byte) setting {
	s := setting{
		queue:     []informer.QueueKind{informer.QueueDeltaFIFO, informer.QueueRealFIFO}[b[0]%2],
		source:    []sourceKind{streamed, streamed, listed, paged, rejecting, streamed, listed, silent}[b[0]/2%8],
		store:     []storeKind{defaultStore, plainStore, copyingStore, projectedStore, indexedStore, durableStore}[b[1]%64%6],
		intake:    []informer.IntakeMode{informer.IntakeWhole, informer.IntakeEarly}[b[1]/64%2],
		shared:    b[1]/128 > 0,
		transform: []transformKind{noTransform, marking, failing}[b[2]%3],
		indexed:   b[2]/4%2 > 0,
		observed:  b[2]/8%2 > 0,
		refuses:   b[2]/16%2 > 0,
		split:     b[2]/128 > 0,
		drain:     []time.Duration{0, 0, time.Second, time.Minute}[b[2]/32%4],
		objects:   int(b[3] % 6),
		early:     int(b[3]/8) % 4,
	}
	s.pupils = append(s.pupils, b[5:5+b[4]%4]...)
	if s.store == durableStore {
		s.queue = informer.QueueRealFIFO
	}
	return s
}

// sourceKind is how the source is read, and the kind of server that it is.
type sourceKind string

const (
	streamed  sourceKind = "streamed"
	listed    sourceKind = "listed"
	paged     sourceKind = "listed in pages" // of two
	rejecting sourceKind = "a source that rejects streams"
	silent    sourceKind = "a source that leaves streams silent" // and ignores that one was asked for
)

// transformKind is the kind of Transform. It marks each object.
type transformKind string

const (
	noTransform transformKind = "no Transform"
	marking     transformKind = "a Transform"
	failing     transformKind = "a Transform that may fail"
)

func (s setting) String() string {
	queue := map[informer.QueueKind]string{informer.QueueDeltaFIFO: "DeltaFIFO", informer.QueueRealFIFO: "RealFIFO"}[s.queue]
	intake := map[informer.IntakeMode]string{informer.IntakeWhole: "whole", informer.IntakeEarly: "as they arrive"}[s.intake]
	return fmt.Sprintf("%s, %v, lists taken in %s, parts shared %v, %v, %s, over namespaces %v, an index %v, an Observer %v, old versions refused at once %v, DrainTimeout %v, %d deeds before Run",
		queue, s.source, intake, s.shared, s.store, s.transform, s.split, s.indexed, s.observed, s.refuses, s.drain, s.early)
}

// table is that of all informers with shared parts, so that they have parts in common.
var table = share.New()

// torture is the state of TestModel while it plays one sequence.
type torture struct {
	report
	setting
	in     []string // the namespaces that are read, if the informer is one over several
	src    *source
	shelf  *shelf // outlives a process
	life   *incarnation
	lives  int
	early  int // number of deeds left before Run
	quiet  bool
	serial int // makes the value of each version unique

	troubled atomic.Bool // the source was in trouble

	mu      sync.Mutex // protects the rest; never held while waiting
	facts   map[presence]fact
	current map[string]presence
	ended   map[types.UID]uint64 // the version of the delete
	absent  map[string]bool      // namespaces that were ever not read
}

// fact is the name and the value of a version of an object in the source.
type fact struct{ name, value string }

func newTorture(s setting) *torture {
	w := &torture{
		report: report{loud: *modelSeed >= 0}, setting: s, src: informertest.NewSource[configMap](), early: s.early, quiet: true,
		in: namespaces, absent: map[string]bool{}, facts: map[presence]fact{}, current: map[string]presence{}, ended: map[types.UID]uint64{},
	}
	w.shelf = newShelf(w)
	w.mute(false)
	w.say("%v, %d objects", s, s.objects)
	for i := range s.objects {
		w.write(i, false)
	}
	return w
}

func (w *torture) String() string {
	w.report.mu.Lock()
	defer w.report.mu.Unlock()
	return fmt.Sprintf("  %s\nbut:\n  %s", strings.Join(w.said, "\n  "), strings.Join(w.problems, "\n  "))
}

// do performs a deed and checks the result.
func (w *torture) do(d deed) {
	if w.life == nil {
		w.begin()
	}
	if w.life.cancel == nil {
		if w.early--; w.early < 0 {
			w.life.run()
		}
	}
	if d.atOnce {
		w.say("at once:")
	}
	deeds[d.what].do(w, d)
	if w.quiet = !d.atOnce; w.quiet {
		synctest.Wait()
		if w.life != nil {
			w.life.audit()
		}
	}
}

// finish settles and stops the process, unless a promise is broken already.
func (w *torture) finish() {
	if !w.broken() {
		w.settle(deed{})
	}
	if w.life != nil {
		w.stop(deed{})
	}
}

// The source.

func nameOf(i int) string { return "o" + strconv.Itoa(i%6) }

// namespaces are those of the objects.
var namespaces = []string{"default", "other"}

// placeOf returns the key of an object: every second one is in the other namespace.
func placeOf(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespaces[int(name[len(name)-1])%2], Name: name}
}

// keyNamed returns the key of an object in a store.
func keyNamed(name string) string { return placeOf(name).String() }

// write creates or changes an object. A Transform that may fail does so for a bad object.
func (w *torture) write(i int, bad bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.serial++
	value := strconv.Itoa(w.serial)
	if bad && w.transform == failing {
		value += " bad"
	}
	now := presenceOf(w.src.Apply(objectAt(placeOf(nameOf(i)), value)))
	w.facts[now] = fact{nameOf(i), value}
	w.current[keyNamed(nameOf(i))] = now
}

func (w *torture) remove(i int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if obj, err := w.src.Delete(placeOf(nameOf(i))); err == nil {
		w.ended[obj.UID] = presenceOf(obj).version
		delete(w.current, keyNamed(nameOf(i)))
	}
}

func (w *torture) fact(p presence) (f fact, known bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f, known = w.facts[p]
	return f, known
}

func (w *torture) end(uid types.UID) (version uint64, ended bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	version, ended = w.ended[uid]
	return version, ended
}

// chosen reports whether watchers with Select select a version: they select two thirds of all
// versions.
func (w *torture) chosen(p presence) bool {
	f, _ := w.fact(p)
	return chosenValue(f.value)
}

func chosenValue(value string) bool {
	n, _ := strconv.Atoi(strings.TrimSuffix(value, " bad"))
	return n%3 > 0
}

// present returns the objects of the source that the informer reads.
func (w *torture) present() []configMap {
	return within(w.src.Objects(), w.in...)
}

// wanted returns them as text.
func (w *torture) wanted() string { return words(w.present()) }
