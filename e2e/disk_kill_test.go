package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/store"
	"github.com/customcacheinformer/informer/store/disk"
)

// livesVariable names the environment variable that holds the instructions, a killed in JSON,
// for a process that will be killed.
const livesVariable = "E2E_LIFE"

var kills = flag.Int("kills", 10, "how often a process is killed; with -short at most once in each way")

// killed holds the instructions for a process that will be killed.
type killed struct {
	Host, Token string
	CA          []byte
	Resource    schema.GroupVersionResource
	Path        string // the file of the store
	Before      string // the file for a copy of the store as it was before the last Apply, see ending
	Record      string // the file to which the watcher appends what it handles
	Marker      string // the name of an object that makes the process print what it knows
	Controllers bool   // run the controllers of control instead of a watcher
	Calm        bool   // no call of these controllers fails
	Clusters    bool   // read the resource as the cluster east, and in the first round also another namespace as the cluster away
	Round       int    // in odd rounds, east is engaged when the process has synced
}

const awayObjects = 20 // of the cluster away, which only the first process reads

// liveUntilKilled runs an informer over a disk store. Its watcher writes "+UID" for an object
// that exists and "-UID" for one that is gone. The process prints "synced" once it has synced.
// When the marker appears, the process prints its name, one line for each object that the
// watcher or the store knows, and an empty line. When its standard input ends, it kills itself
// in the next Apply.
func liveUntilKilled(text string) {
	if err := live(text); err != nil {
		log.Fatal(err)
	}
}

// ending is a store that can kill its process at the end of an Apply, before any watcher is
// notified of the changes. It keeps a copy of the file from before that Apply.
type ending struct {
	*disk.Store
	killed
	now atomic.Bool
}

func (s *ending) Apply(ctx context.Context, changes []informer.Change, bookmark string) error {
	if !s.now.Load() {
		return s.Store.Apply(ctx, changes, bookmark)
	}
	before, err := os.ReadFile(s.Path)
	if err == nil {
		err = os.WriteFile(s.Before, before, 0o600)
	}
	if err == nil {
		err = s.Store.Apply(ctx, changes, bookmark)
	}
	if err != nil {
		log.Fatal(err)
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

func live(text string) error {
	var k killed
	if err := json.Unmarshal([]byte(text), &k); err != nil {
		return err
	}
	config := &rest.Config{Host: k.Host, BearerToken: k.Token, TLSClientConfig: rest.TLSClientConfig{CAData: k.CA}, QPS: -1}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	record, err := os.OpenFile(k.Record, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	store, err := disk.Open(k.Path, &unstructured.Unstructured{}, disk.Options{
		Identity:     store.Identity{Cluster: "e2e", Resource: "objects"},
		ErrorHandler: func(err error) { fmt.Println("reported:", err) },
	})
	if err != nil {
		return err
	}
	end := &ending{Store: store, killed: k}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		end.now.Store(true)
	}()
	opts := informer.Options[object]{Durable: end}
	if k.Controllers {
		opts.Indexers = byKey()
	}
	east, engage := informer.ListWatch(client.Resource(k.Resource).Namespace(namespace)), func() error { return nil }
	var inf *informer.CustomCacheInformer[object]
	if k.Clusters {
		var set *informer.Clusters[object]
		if set, err = informer.NewOverClusters(opts, informer.ClusterOptions{}); err == nil {
			inf, engage = set.CustomCacheInformer, func() error { return set.Engage("east", informer.ClusterSource{Source: east, UID: "1"}) }
		}
		if err == nil && k.Round == 0 {
			err = set.Engage("away", informer.ClusterSource{Source: informer.ListWatch(client.Resource(k.Resource).Namespace("away")), UID: "2"})
		}
	} else {
		inf, err = informer.NewFrom(east, opts)
	}
	if err == nil && k.Round%2 == 0 {
		err = engage()
	}
	if err != nil {
		return err
	}
	if k.Controllers {
		return control(k, record, store, inf)
	}
	view := map[string]string{}
	watcher := informer.WatcherFunc[object](func(_ context.Context, e informer.Event[object]) error {
		line := ""
		if e.Cluster() == "away" {
			if e.Type == informer.EventDeleted {
				fmt.Println("reported: a delete of a cluster that is only out of reach")
			}
			return nil
		}
		if e.Type == informer.EventDeleted {
			line = "-" + string(e.Old.GetUID()) + "\n"
			delete(view, e.Key().Name)
		} else {
			line = "+" + string(e.New.GetUID()) + "\n"
			view[e.Key().Name] = version(e.New)
		}
		_, err := record.WriteString(line)
		if err != nil {
			log.Fatal(err)
		}
		if e.Type == informer.EventAdded && e.Key().Name == k.Marker {
			say(k, view, store)
		}
		return nil
	})
	if _, err := inf.AddWatcher(watcher, informer.WatcherOptions{MaxBacklog: -1}); err != nil {
		return err
	}
	go func() {
		<-inf.Synced()
		if k.Round%2 == 1 {
			if err := engage(); err != nil {
				log.Fatal(err)
			}
		}
		fmt.Println("synced")
	}()
	return inf.Run(context.Background())
}

// say prints the objects that the watcher and the store know.
func say(k killed, view map[string]string, store *disk.Store) {
	var text strings.Builder
	fmt.Fprintln(&text, k.Marker)
	for name, version := range view {
		fmt.Fprintln(&text, "watcher", name, version)
	}
	stored, err := store.Scan(context.Background(), "", 1<<20)
	if err != nil {
		log.Fatal(err)
	}
	away := 0
	for _, e := range stored {
		if strings.HasPrefix(e.Key, "away|") {
			away++
		} else {
			fmt.Fprintln(&text, "store", e.Object.GetName(), version(e.Object.(object)))
		}
	}
	if k.Clusters && away != awayObjects {
		fmt.Fprintln(&text, "store", "objects of away:", away)
	}
	fmt.Println(text.String())
}

// load writes to the server until it is stopped, and records the UIDs of deleted objects.
type load struct {
	*world
	pause sync.RWMutex // held by every writer while it writes; locked to stop all writing
	over  atomic.Bool
	mu    sync.Mutex // protects the rest
	gone  map[types.UID]bool
	all   sync.WaitGroup
}

const loadObjects = 300

func (l *load) start() {
	for part, client := range l.writers {
		l.all.Go(func() {
			random, uids := rand.New(rand.NewPCG(uint64(part), 3)), map[int]types.UID{}
			for size := 0; !l.over.Load(); size++ {
				l.write(client, random, uids, part+clients*random.IntN(loadObjects/clients), size)
			}
		})
	}
}

// write creates, changes or deletes an object.
func (l *load) write(client dynamic.ResourceInterface, random *rand.Rand, uids map[int]types.UID, n, size int) {
	l.pause.RLock()
	defer l.pause.RUnlock()
	switch uid := uids[n]; {
	case uid == "":
		obj, err := client.Create(l.t.Context(), l.widget(name(n), size), metav1.CreateOptions{})
		if l.do(err); err == nil {
			uids[n] = obj.GetUID()
		}
	case random.IntN(3) == 0:
		l.remove(client, name(n))
		l.mu.Lock()
		l.gone[uid] = true
		l.mu.Unlock()
		delete(uids, n)
	default:
		l.update(client, name(n), size)
	}
}

// stop ends all writing and waits until every writer has returned.
func (l *load) stop() {
	l.over.Store(true)
	l.all.Wait()
}

type process struct {
	*exec.Cmd
	in  io.Closer
	out *bufio.Scanner
}

func (w *world) startKilled(k killed) *process {
	w.t.Helper()
	text, err := json.Marshal(k)
	if err != nil {
		w.t.Fatal(err)
	}
	program, err := os.Executable()
	if err != nil {
		w.t.Fatal(err)
	}
	cmd := exec.Command(program)
	// Without halt_on_error the race detector would only print a race.
	cmd.Env, cmd.Stderr = append(os.Environ(), livesVariable+"="+string(text), "GORACE=halt_on_error=1"), os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		w.t.Fatal(err)
	}
	p := &process{cmd, in, bufio.NewScanner(out)}
	w.t.Cleanup(func() { // in case the test ends before it has killed the process
		_ = p.Process.Kill()
		_ = p.Wait()
	})
	return p
}

// kill kills the process, or has it kill itself at the end of an Apply.
func (p *process) kill(t *testing.T, inApply bool) {
	t.Helper()
	end := p.Process.Kill
	if inApply {
		end = p.in.Close
	}
	if err := end(); err != nil {
		t.Fatal(err)
	}
	for p.out.Scan() {
		if text := p.out.Text(); strings.HasPrefix(text, "reported") {
			t.Error(text)
		}
	}
	if err := p.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Fatalf("the process ended, but not by a kill: %v", err)
	}
}

// until returns the lines that the process prints before the given line.
func (p *process) until(t *testing.T, line string) (before []string) {
	t.Helper()
	for p.out.Scan() {
		if text := p.out.Text(); text != line {
			before = append(before, text)
			continue
		}
		return before
	}
	t.Fatalf("the process ended before it printed %q: %v", line, before)
	return nil
}

// These are the ways in which a process ends, in turn.
const (
	anyMoment = iota
	whileItStarts
	untold // killed after a write, before any watcher gets it
	torn   // killed in a write that loses some of its pages, as in a power failure
	ways
)

func TestAKilledProcessMissesNothing(t *testing.T) {
	t.Run("one cluster", func(t *testing.T) { missesNothing(t, false) })
	t.Run("clusters", func(t *testing.T) { missesNothing(t, true) })
}

func missesNothing(t *testing.T, clusters bool) {
	kills := *kills
	if testing.Short() {
		kills = min(kills, ways)
	}
	w, dir := newWorldOf(t, "kill.example.com"), t.TempDir()
	config := server.Config()
	k := killed{
		Host: config.Host, Token: config.BearerToken, CA: config.CAData, Resource: w.gvr,
		Path: filepath.Join(dir, "widgets.db"), Before: filepath.Join(dir, "before"), Record: filepath.Join(dir, "record"),
		Clusters: clusters,
	}
	for n := range awayObjects {
		w.create(w.client(config).Namespace("away"), name(n), 1)
	}
	l := &load{world: w, gone: map[types.UID]bool{}}
	l.start()
	defer l.stop()
	random := rand.New(rand.NewPCG(1, 3))
	moment := func(most int) { // the server runs in real time
		<-time.After(time.Duration(random.IntN(most)) * time.Millisecond)
	}
	pages := 0
	for round := range kills {
		way := round % ways
		if k.Round = round; way == whileItStarts {
			p := w.startKilled(k)
			moment(250)
			p.kill(t, false)
			continue
		}
		p := l.lookInto(k, round)
		moment(300)
		p.kill(t, way != anyMoment)
		if way == torn {
			pages += tear(t, k, random)
		}
	}
	l.stop()
	l.lookInto(k, kills).kill(t, false)
	t.Logf("%d kills; the torn writes lost %d pages", kills, pages)
	if kills >= 2*ways && pages == 0 {
		t.Error("no torn write lost a page")
	}
	l.checkRecord(k.Record, kills)
}

// tear undoes the last write in part. It always restores the pages that lead to the other
// pages, because bbolt writes those only once the other pages are on the disk. It restores
// some of the other pages too, and returns how many.
func tear(t *testing.T, k killed, random *rand.Rand) (lost int) {
	t.Helper()
	after, err := os.ReadFile(k.Path)
	if err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(k.Before)
	if err != nil {
		t.Fatal(err)
	}
	const size = 8 << 10 // size of a page; the first two pages lead to all others
	before = append(before, make([]byte, max(0, len(after)-len(before)))...)
	for at := 0; at < len(after); at += size {
		was, is := before[at:at+size], after[at:at+size]
		if at < 2*size || !bytes.Equal(was, is) && random.IntN(2) == 0 {
			lost++
			copy(is, was)
		}
	}
	if err := os.WriteFile(k.Path, after, 0o600); err != nil {
		t.Fatal(err)
	}
	return lost - 2
}

// lookInto starts a process. It fails the test if the process does not use the existing file,
// or does not know the state of the server.
func (l *load) lookInto(k killed, round int) *process {
	l.t.Helper()
	k.Marker, k.Round = fmt.Sprint("marker-", round), round
	p := l.startKilled(k)
	if before := p.until(l.t, "synced"); len(before) > 0 {
		l.t.Errorf("after kill %d: %q", round, before)
	}
	l.pause.Lock() // no further writes: the process can know everything that is written now
	defer l.pause.Unlock()
	l.checkMarker(p, k.Marker, round)
	return p
}

// checkMarker fails the test unless the process knows the state of the server.
func (w *world) checkMarker(p *process, marker string, round int) {
	w.t.Helper()
	w.create(w.writers[0], marker, round)
	p.until(w.t, marker)
	got := map[string]map[string]string{"watcher": {}, "store": {}}
	for _, line := range p.until(w.t, "") {
		who, rest, _ := strings.Cut(line, " ")
		name, version, _ := strings.Cut(rest, " ")
		got[who][name] = version
	}
	want := w.state()
	for who, view := range got {
		wrong := 0
		for key, version := range want {
			if view[key.Name] != version {
				wrong++
			}
		}
		if wrong > 0 || len(view) != len(want) {
			w.t.Errorf("after kill %d the %s knows %d objects, of which %d are wrong; the server has %d", round, who, len(view), wrong, len(want))
		}
	}
}

// checkRecord fails the test unless the watcher has handled every delete, of which there must
// be one for each kill.
func (l *load) checkRecord(path string, kills int) {
	t, gone := l.t, l.gone
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	handled, added := map[types.UID]int{}, map[types.UID]bool{}
	for line := range strings.Lines(string(text)) {
		uid := types.UID(strings.TrimSpace(line[1:]))
		if line[0] == '-' {
			handled[uid]++
		} else {
			added[uid] = true
		}
	}
	missed, unseen, twice := 0, 0, 0
	for uid := range gone {
		switch {
		case handled[uid] > 1:
			twice++
		case handled[uid] == 1:
		case added[uid]:
			missed++
		default:
			unseen++
		}
	}
	t.Logf("of %d deletes %d were handled more than once, and %d are of objects that the watcher never saw", len(gone), twice, unseen)
	if missed > 0 {
		t.Errorf("%d deletes were never handled", missed)
	}
	if len(gone) < kills || unseen > len(gone)/2 {
		t.Errorf("too little load: %d deletes, %d of them unseen", len(gone), unseen)
	}
}
