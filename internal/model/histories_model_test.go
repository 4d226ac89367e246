package model_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
)

// The model of TestHistories: the states of the source, and the state that a store must have.

var errInjected = errors.New("on purpose")

// history is one play of TestHistories.
type history struct {
	report
	seed    uint64
	src     *source
	server  *restarting
	mode    informer.WatchListMode
	intake  informer.IntakeMode
	shared  bool     // equal parts of objects are one memory
	refuses bool     // the source refuses a watch at a version that it no longer knows
	split   bool     // the informers are over several namespaces
	in      []string // which these are now
	kinds   []kind   // the watchers that each process has from its start

	states map[string]string   // states of the source, by version
	parts  map[string]string   // the same of each namespace, by version and namespace
	undone []map[string]string // for each Restore, the states that it undid
	since  uint64              // older versions are expired
	most   uint64              // if not 0, the version must stay below this, see restore
	count  int                 // makes the value of each write unique
	wrote  map[uint64]string   // the name of the object last stored at a version

	store   *durable // as the last process left it; nil while a process runs
	life    *life    // nil while no process runs
	calm    bool     // nothing has happened since the history settled
	settled bool     // the current step settled the history
	wiped   int      // number of stores thrown away, see bound

	last []*keeper // the watchers of the process that ended last
}

func newHistory(seed uint64) *history {
	r := rand.New(rand.NewPCG(seed, 3))
	h := &history{
		report: report{loud: *historySeed >= 0},
		seed:   seed, src: informertest.NewSource[configMap](), store: informertest.NewDurable(),
		mode: informer.WatchListOff + informer.WatchListMode(r.IntN(2)), states: map[string]string{}, parts: map[string]string{}, in: namespaces, wrote: map[uint64]string{},
	}
	h.intake = informer.IntakeEarly + informer.IntakeMode(rand.New(rand.NewPCG(seed, 7)).IntN(2))
	h.shared = rand.New(rand.NewPCG(seed, 9)).IntN(2) == 0
	h.split = rand.New(rand.NewPCG(seed, 11)).IntN(3) == 0
	h.server = &restarting{source: h.src}
	h.refuses = r.IntN(2) == 0
	h.src.SetFaults(informertest.Faults{RefuseExpired: h.refuses})
	for _, i := range r.Perm(len(kinds))[:1+r.IntN(3)] {
		h.kinds = append(h.kinds, kinds[i])
	}
	h.since = h.version()
	h.states[h.src.ResourceVersion()] = ""
	for range r.IntN(6) {
		h.change(r)
	}
	return h
}

// restarting is a source that refuses some watches, like a server during its start.
type restarting struct {
	*source
	refuses atomic.Int32
}

func (s *restarting) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	return s.client("").Watch(ctx, opts)
}

// client returns the client for a namespace, or for all if it is "".
func (s *restarting) client(namespace string) informer.UntypedClient[*metav1.List] {
	return restartingIn{s.Namespace(namespace), s}
}

type restartingIn struct {
	informer.UntypedClient[*metav1.List]
	server *restarting
}

func (c restartingIn) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	if c.server.refuses.Add(-1) >= 0 {
		return nil, testkit.Dialing(syscall.ECONNREFUSED)
	}
	return c.UntypedClient.Watch(ctx, opts)
}

// The source and its versions.

// place returns the key of an object.
func (h *history) place(name string) types.NamespacedName {
	if h.split {
		return placeOf(name)
	}
	return keyOf(name)
}

func (h *history) version() uint64 { return versionNumber(h.src.ResourceVersion()) }

func versionNumber(version string) uint64 {
	n, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

// idOf returns the part of a UID that differs from object to object.
func idOf(uid types.UID) string { return strings.TrimLeft(string(uid[24:]), "0") }

// words returns objects as text.
func words(objs []configMap) string {
	var all []string
	for _, obj := range objs {
		all = append(all, fmt.Sprintf("%s uid %s version %s value %s", obj.Name, idOf(obj.UID), obj.ResourceVersion, obj.Data["value"]))
	}
	slices.Sort(all)
	return strings.Join(all, "; ")
}

// moved records the state of the source after a step of the source.
func (h *history) moved(format string, args ...any) {
	h.states[h.src.ResourceVersion()] = words(h.src.Objects())
	for _, namespace := range namespaces {
		h.parts[h.src.ResourceVersion()+namespace] = words(within(h.src.Objects(), namespace))
	}
	h.say("%s: version %s", fmt.Sprintf(format, args...), h.src.ResourceVersion())
}

func (h *history) mayMove(n uint64) bool { return h.most == 0 || h.version()+n < h.most }

// undo removes the states after a version and keeps them as undone.
func (h *history) undo(version uint64) {
	void := map[string]string{}
	for v, state := range h.states {
		if versionNumber(v) > version {
			void[v] = state
			delete(h.states, v)
		}
	}
	h.undone = append(h.undone, void)
}

// standing is the state of a store, and whether the source had that state.
type standing struct {
	bookmark   string
	state      string
	objects    map[types.UID]bool
	tombstones map[types.UID]bool
	current    bool // the source had this state and has not gone back behind it
	undone     bool // the source had this state and has gone back behind it
}

// look returns the standing of a store, and checks that the source had that state too.
func (h *history) look(store *durable) (s standing) {
	s.objects, s.tombstones = map[types.UID]bool{}, map[types.UID]bool{}
	objs := testkit.Stored(store)
	for _, obj := range objs {
		s.objects[obj.UID] = true
	}
	s.state = words(objs)
	tombs, err := store.Tombstones(context.Background())
	for _, tomb := range tombs {
		s.tombstones[tomb.Object.GetUID()] = true
	}
	bookmark, wrong := store.Resume(context.Background())
	if err = errors.Join(err, wrong); err != nil {
		h.problem("the store cannot be read: %v", err)
	}
	s.bookmark = bookmark
	if bookmark == "" {
		return s
	}
	if h.split {
		s.current = h.lookAtParts(bookmark, objs)
		return s
	}
	state, there := h.states[bookmark]
	s.current = there && state == s.state
	for _, states := range h.undone {
		state, there := states[bookmark]
		s.undone = s.undone || there && state == s.state
	}
	if !s.current && !s.undone {
		h.problem("the store has the bookmark %s, but the source had then\n    %s\n  and the store has\n    %s", bookmark, state, s.state)
	}
	return s
}

// lookAtParts reports whether each namespace of a store has the state that the bookmark names, and no other has an object.
func (h *history) lookAtParts(bookmark string, objs []configMap) bool {
	versions := map[string]string{}
	if err := json.Unmarshal([]byte(bookmark), &versions); err != nil {
		h.problem("the bookmark is %s: %v", bookmark, err)
	}
	for _, namespace := range namespaces {
		version, named := versions[namespace]
		got := words(within(objs, namespace))
		if want := h.parts[version+namespace]; got != want && (!named || version != "") {
			h.problem("the store has the bookmark %s, but the namespace %s of the source had then\n    %s\n  and the store has\n    %s", bookmark, namespace, want, got)
			return false
		}
	}
	return true
}

// bound keeps the source below the bookmark of a store that holds undone changes. Below it,
// the start of an informer notices that the source went back. At or above it, nothing can notice
// that. If the source is there already, bound throws the store away, with the events it still
// owed.
func (h *history) bound() {
	h.most = 0
	if s := h.look(h.store); !h.split && s.bookmark != "" && !s.current {
		h.most = versionNumber(s.bookmark)
		if h.version() >= h.most { // too late
			h.say("the store is thrown away")
			h.store, h.most = informertest.NewDurable(), 0
			h.wiped++
		}
	}
}
