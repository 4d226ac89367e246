package valkey_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"log"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	client "github.com/valkey-io/valkey-go"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/store"
	"github.com/customcacheinformer/informer/store/valkey"
)

// role is the work of a process.
type role struct {
	Name       string
	Server     string // address of the Valkey server
	Resource   schema.GroupVersionResource
	Kubeconfig string // of a writer; a reader has none
	Token      int64  // of a writer
	Log        int    // of a writer
	Informers  int    // of a reader
	Back       bool   // versions may go back, because the API server is restored from a backup
}

// message is a line that a process prints.
type message struct {
	Synced  bool
	Deleted string // the name of an object whose delete the watcher got
	Gone    string // its UID
	Exists  string // the UID of an object that the watcher got
	Stored  []moment
	Ended   string // the error of Run
	Fenced  bool   // the error is ErrFenced
	State   *readerState
}

// readerState is what all informers of a reader have.
type readerState struct {
	Hashes  []uint64 // of names and versions
	Events  int      // delivered to all watchers
	Wrong   []string // events that no watcher should get
	Deletes int
	Lists   int      // of all informers, without those that failed
	Seen    []moment // the events of changes, if asked for
}

// moment is when a version of an object was written to the store, or when a watcher got it.
type moment struct {
	Version string
	At      time.Time
}

var printing sync.Mutex

func say(m message) {
	printing.Lock()
	defer printing.Unlock()
	must(json.NewEncoder(os.Stdout).Encode(m))
}

// must ends the process with an error.
func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// play is the main function of a process with a role.
func play(r role) error {
	c, err := dial(r.Server)
	must(err)
	defer c.Close()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if r.Informers > 0 {
		r.read(ctx, c)
	} else {
		r.write(ctx, c)
	}
	return nil
}

func (r role) identity() store.Identity {
	return store.Identity{Cluster: "e2e", Resource: r.Resource.String()}
}

// timed is a store that reports when it begins to write a version of an object.
type timed struct{ *valkey.Store }

func (t timed) Apply(ctx context.Context, changes []informer.Change, bookmark string) error {
	at, stored := time.Now(), []moment(nil)
	for _, c := range changes {
		if !c.Delete {
			stored = append(stored, moment{c.Object.GetResourceVersion(), at})
		}
	}
	err := t.Store.Apply(ctx, changes, bookmark)
	if err == nil && len(stored) > 0 {
		say(message{Stored: stored})
	}
	return err
}

func (r role) write(ctx context.Context, c client.Client) {
	s, err := valkey.Open(ctx, c, &unstructured.Unstructured{}, valkey.Options{
		Identity: r.identity(), Token: r.Token, Writer: r.Name, Log: r.Log,
	})
	if err != nil {
		say(message{Ended: err.Error()})
		return
	}
	config, err := clientcmd.BuildConfigFromFlags("", r.Kubeconfig)
	must(err)
	config.QPS, config.UserAgent = -1, r.Name
	objects, err := dynamic.NewForConfig(config)
	must(err)
	inf, err := informer.NewFrom(informer.ListWatch(objects.Resource(r.Resource)), informer.Options[*unstructured.Unstructured]{Durable: timed{s}})
	must(err)
	_, err = inf.AddWatcher(informer.WatcherFunc[*unstructured.Unstructured](func(_ context.Context, e informer.Event[*unstructured.Unstructured]) error {
		if e.Type == informer.EventDeleted {
			say(message{Deleted: e.Key().Name, Gone: string(e.Old.GetUID())})
		} else {
			say(message{Exists: string(e.New.GetUID())})
		}
		return nil
	}), informer.WatcherOptions{})
	must(err)
	go func() {
		if inf.WaitForSync(ctx) == nil {
			say(message{Synced: true})
		}
	}()
	err = s.Run(ctx, inf.Run)
	say(message{Ended: fmt.Sprint(err), Fenced: s.Err() != nil && strings.Contains(s.Err().Error(), valkey.ErrFenced.Error())})
}

// audience checks the events of one informer.
type audience struct {
	mu    sync.Mutex
	have  map[string]string
	back  bool
	state *readerState
	seen  []moment
}

func (a *audience) take(_ context.Context, e informer.Event[*unstructured.Unstructured]) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	name, version := e.Key().Name, e.Object().GetResourceVersion()
	a.state.Events++
	switch before := a.have[name]; e.Type {
	case informer.EventDeleted:
		a.state.Deletes++
		if before == "" {
			a.wrong("%s is deleted twice", name)
		}
		delete(a.have, name)
		return nil
	case informer.EventAdded:
		if before != "" {
			a.wrong("%s is added twice", name)
		}
	default:
		if before == "" || !a.back && (len(version) < len(before) || len(version) == len(before) && version <= before) {
			a.wrong("%s goes from version %q to %s", name, before, version)
		}
	}
	a.have[name] = version
	if e.Origin == informer.OriginWatch {
		a.seen = append(a.seen, moment{version, time.Now()})
	}
	return nil
}

func (a *audience) wrong(format string, args ...any) {
	a.state.Wrong = append(a.state.Wrong, fmt.Sprintf(format, args...))
}

// hash returns a hash of names and versions.
func hash(have map[string]string) uint64 {
	h := fnv.New64a()
	for _, name := range slices.Sorted(maps.Keys(have)) {
		fmt.Fprintln(h, name, have[name])
	}
	return h.Sum64()
}

// read runs informers over Sources. For each line of its standard input it prints its state, and for the
// line "seen" also the events.
func (r role) read(ctx context.Context, c client.Client) {
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	all := make([]*audience, r.Informers)
	var listed atomic.Int64
	for i := range all {
		source, err := valkey.NewSource(c, &unstructured.Unstructured{}, r.identity())
		must(err)
		inf, err := informer.NewFrom(source, informer.Options[*unstructured.Unstructured]{
			Observer: &informer.Observer{List: func(l informer.ListInfo) {
				if l.Err == nil {
					listed.Add(1)
				}
			}},
		})
		must(err)
		all[i] = &audience{have: map[string]string{}, back: r.Back, state: &readerState{}}
		_, err = inf.AddWatcher(informer.WatcherFunc[*unstructured.Unstructured](all[i].take), informer.WatcherOptions{MaxBacklog: -1})
		must(err)
		running.Go(func() { must(inf.Run(ctx)) })
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		sum := &readerState{}
		for _, a := range all {
			a.mu.Lock()
			sum.Hashes = append(sum.Hashes, hash(a.have))
			sum.Events += a.state.Events
			sum.Deletes += a.state.Deletes
			sum.Wrong = append(sum.Wrong, a.state.Wrong...)
			if lines.Text() == "seen" {
				sum.Seen = append(sum.Seen, a.seen...)
			}
			a.mu.Unlock()
		}
		sum.Lists = int(listed.Load())
		say(message{State: sum})
	}
}
