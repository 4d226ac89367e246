package e2e_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/store/disk"
)

// livesVariable has what a process is told that is started to be killed.
const livesVariable = "E2E_LIFE"

// killsVariable is how often it is killed.
const killsVariable = "E2E_KILLS"

// killed is what such a process is told.
type killed struct {
	Host, Token string
	CA          []byte
	Resource    schema.GroupVersionResource
	Path        string // of the store
	Record      string // of the file to which its watcher appends what it handles
}

// liveUntilKilled runs an informer over a disk store. Its watcher writes "+UID" for what
// is there and "-UID" for what is gone. The process says "synced", and, when an object is
// there whose name begins with "marker", that name and what it knows: a line for each
// object, and an empty one.
func liveUntilKilled(text string) {
	if err := live(text); err != nil {
		log.Fatal(err)
	}
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
	store, err := disk.Open(k.Path, &unstructured.Unstructured{}, disk.Options{ErrorHandler: func(err error) { fmt.Println("aside", err) }})
	if err != nil {
		return err
	}
	inf, err := informer.New(informer.ListWatch(client.Resource(k.Resource).Namespace(namespace)), informer.Options[object]{Store: store})
	if err != nil {
		return err
	}
	view := map[string]string{}
	watcher := informer.WatcherFunc[object](func(_ context.Context, e informer.Event[object]) error {
		line := ""
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
		if e.Type == informer.EventAdded && strings.HasPrefix(e.Key().Name, "marker") {
			say(e.Key().Name, view, store)
		}
		return nil
	})
	if _, err := inf.AddWatcher(watcher, informer.WatcherOptions{MaxBacklog: -1}); err != nil {
		return err
	}
	go func() {
		<-inf.Synced()
		fmt.Println("synced")
	}()
	return inf.Run(context.Background())
}

// say tells what the watcher and the store know.
func say(marker string, view map[string]string, store *disk.Store) {
	var text strings.Builder
	fmt.Fprintln(&text, marker)
	for name, version := range view {
		fmt.Fprintln(&text, "watcher", name, version)
	}
	for _, obj := range store.List() {
		fmt.Fprintln(&text, "store", obj.(object).GetName(), version(obj.(object)))
	}
	fmt.Println(text.String())
}

// load writes to the server until it is stopped, and notes what it has deleted.
type load struct {
	*world
	pause sync.RWMutex // held by whoever is writing, and to have nobody write
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
				n := part + clients*random.IntN(loadObjects/clients)
				l.pause.RLock()
				switch uid := uids[n]; {
				case uid == "":
					obj, err := client.Create(l.t.Context(), l.widget(name(n), size), metav1.CreateOptions{})
					l.do(err)
					uids[n] = obj.GetUID()
				case random.IntN(3) == 0:
					l.remove(client, name(n))
					l.mu.Lock()
					l.gone[uid] = true
					l.mu.Unlock()
					delete(uids, n)
				default:
					l.update(client, name(n), size)
				}
				l.pause.RUnlock()
			}
		})
	}
}

// process is one that is to be killed.
type process struct {
	*exec.Cmd
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
	cmd.Env, cmd.Stderr = append(os.Environ(), livesVariable+"="+string(text)), os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return &process{cmd, bufio.NewScanner(out)}
}

// until returns what the process says up to that line.
func (p *process) until(t *testing.T, line string) (before []string) {
	t.Helper()
	for p.out.Scan() {
		if text := p.out.Text(); text != line {
			before = append(before, text)
			continue
		}
		return before
	}
	t.Fatalf("the process has ended before it has said %q: %v", line, before)
	return nil
}

func TestAProcessThatIsKilledMissesNothing(t *testing.T) {
	kills := 10
	if text := os.Getenv(killsVariable); text != "" {
		var err error
		if kills, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	w, dir := newWorldOf(t, "kill.example.com"), t.TempDir()
	config := server.Config()
	k := killed{Host: config.Host, Token: config.BearerToken, CA: config.CAData, Resource: w.gvr, Path: filepath.Join(dir, "widgets.db"), Record: filepath.Join(dir, "record")}
	l := &load{world: w, gone: map[types.UID]bool{}}
	l.start()
	defer l.all.Wait()
	defer l.over.Store(true)
	random := rand.New(rand.NewPCG(1, 3))
	for round := range kills + 1 {
		p := w.startKilled(k)
		before := p.until(t, "synced")
		for _, line := range before {
			if strings.HasPrefix(line, "aside") {
				t.Errorf("after kill %d: %s", round, line)
			}
		}
		if round == kills {
			l.over.Store(true)
			l.all.Wait()
		}
		l.pause.Lock() // what is written now, everybody knows
		w.checkMarker(p, round)
		l.pause.Unlock()
		if round < kills {
			<-time.After(time.Duration(random.IntN(300)) * time.Millisecond) // a moment, in real time, under load
		}
		w.do(p.Process.Kill())
		_ = p.Wait()
	}
	checkRecord(t, k.Record, l.gone)
}

// checkMarker fails the test unless the process knows what the server has.
func (w *world) checkMarker(p *process, round int) {
	w.t.Helper()
	marker := fmt.Sprint("marker-", round)
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

// checkRecord fails the test unless the watcher has handled every delete.
func checkRecord(t *testing.T, path string, gone map[types.UID]bool) {
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
	if len(gone) < 100 || unseen > len(gone)/10 {
		t.Errorf("that is no load: %d deletes, %d of them unseen", len(gone), unseen)
	}
}
