package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	toolswatch "k8s.io/client-go/tools/watch"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/enqueue"
	"github.com/customcacheinformer/informer/store/disk"
)

// errReconcile is why reconcile fails for three in ten keys. In the next process they are others.
var errReconcile = errors.New("on purpose")

var killedOwner = schema.GroupKind{Group: "kill.example.com", Kind: "Owner"}

// control runs two controllers over inf. Calls for some keys fail, unless k.Calm. It appends lines
// to the record: "+ UID" for an object of a watcher's event, "m UID" for one that the function
// of Watches was called for, and for each call that has succeeded "= controller key" with the
// version that the store had when it began. If k.Calm, it prints "done" when the controllers have
// nothing to do, and the store has no tombstone.
func control(k killed, record *os.File, store *disk.Store, inf *informer.CustomCacheInformer[object]) error {
	say := func(format string, args ...any) {
		if _, err := fmt.Fprintf(record, format+"\n", args...); err != nil {
			log.Fatal(err)
		}
	}
	seed := maphash.MakeSeed()
	reconcile := func(controller string) func(context.Context, types.NamespacedName) (time.Duration, error) {
		return func(_ context.Context, key types.NamespacedName) (time.Duration, error) {
			line := fmt.Sprintf("= %s %s %s", controller, key.Name, inf.ResourceVersion())
			if _, err := inf.ByIndex(controller, key.Name); err != nil {
				return 0, err
			}
			if !k.Calm && maphash.Comparable(seed, key)%10 < 3 {
				return 0, errReconcile // it fails until the process is killed
			}
			say("%s", line)
			return 0, nil
		}
	}
	opts := enqueue.Options{Workers: 2, MaxAttempts: 3}
	opts.Name = "objects"
	objects, err := enqueue.NewController(reconcile(opts.Name), opts, enqueue.For(inf), enqueue.Owns(inf, enqueue.Owners{Kind: killedOwner}))
	if err != nil {
		return err
	}
	opts.Name = "labels"
	labels, err := enqueue.NewController(reconcile(opts.Name), opts, enqueue.Watches(inf, func(_ context.Context, obj object) (keys []types.NamespacedName, err error) {
		say("m %s", obj.GetUID())
		if !k.Calm && rand.IntN(10) < 2 {
			return nil, errReconcile
		}
		for _, name := range keysOf("labels", obj) {
			keys = append(keys, types.NamespacedName{Namespace: namespace, Name: name})
		}
		return keys, nil
	}))
	if err != nil {
		return err
	}
	_, err = inf.AddWatcher(informer.WatcherFunc[object](func(_ context.Context, e informer.Event[object]) error {
		if e.Type != informer.EventDeleted {
			say("+ %s", e.New.GetUID())
		}
		return nil
	}), informer.WatcherOptions{})
	if err != nil {
		return err
	}
	group := &informer.Group{ErrorHandler: func(_ context.Context, err error) {
		if !errors.Is(err, errReconcile) {
			fmt.Println("reported:", err)
		}
	}}
	if err := errors.Join(group.Add(inf), group.Add(objects), group.Add(labels)); err != nil {
		return err
	}
	go func() {
		if err := group.WaitForSync(context.Background()); err != nil {
			log.Fatal(err)
		}
		fmt.Println("synced")
		for quiet, waited := 0, 0; k.Calm && quiet < 3; quiet, waited = quiet+1, waited+1 {
			<-time.After(time.Second) // the server and this process run in real time
			kept := 0
			for _, h := range group.Health() {
				switch h := h.(type) {
				case informer.Health:
					kept += h.Tombstones
				case enqueue.Health:
					if h.Busy > 0 || h.Queued > 0 || h.Failing > 0 {
						quiet = -1
					}
				}
			}
			if kept > 0 {
				quiet = -1
			}
			if waited%60 == 59 {
				fmt.Printf("after %d s: %d tombstones\n", waited+1, kept)
			}
		}
		if kept, err := store.Tombstones(context.Background()); err != nil || k.Calm && len(kept) > 0 {
			log.Fatal(len(kept), " tombstones are left: ", err)
		}
		fmt.Println("done")
	}()
	return group.Run(context.Background())
}

// byKey returns an index for each controller, of the objects that lead to a key.
func byKey() informer.Indexers[object] {
	indexers := informer.Indexers[object]{}
	for _, controller := range []string{"objects", "labels"} {
		indexers[controller] = func(obj object) ([]string, error) { return keysOf(controller, obj), nil }
	}
	return indexers
}

func keysOf(controller string, obj object) (names []string) {
	if controller == "labels" {
		return []string{obj.GetLabels()["of"], obj.GetLabels()["of"] + "-other"}
	}
	names = append(names, obj.GetName())
	for _, ref := range obj.GetOwnerReferences() {
		names = append(names, ref.Name)
	}
	return names
}

// keyedLoad is a load of objects with owners and labels. It keeps the objects that it has deleted.
type keyedLoad struct {
	load
	made      atomic.Int64 // counts the objects
	deleted   map[types.UID]object
	deletedAt func() map[types.UID]int // waits for all deletes, and returns their versions
}

// follow begins to note the versions of deletes, which only a watch shows.
func (l *keyedLoad) follow() {
	list, err := l.writers[0].List(l.t.Context(), metav1.ListOptions{Limit: 1})
	if err != nil {
		l.t.Fatal(err)
	}
	watch, err := toolswatch.NewRetryWatcherWithContext(l.t.Context(), list.GetResourceVersion(), cache.ToListerWatcherWithContext(informer.ListWatch(l.writers[0])))
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { watch.Stop(); <-watch.Done() })
	gone, last := map[types.UID]int{}, make(chan struct{})
	go func() {
		defer close(last)
		for e := range watch.ResultChan() {
			obj, ok := e.Object.(object)
			if !ok || obj.GetName() == lastName {
				return
			}
			if e.Type == apiwatch.Deleted {
				gone[obj.GetUID()] = versionOf(l.t, obj.GetResourceVersion())
			}
		}
	}()
	l.deletedAt = func() map[types.UID]int {
		l.create(l.writers[0], lastName, 0)
		<-last
		return gone
	}
}

func (l *keyedLoad) start() {
	for part, client := range l.writers {
		l.all.Go(func() {
			random, objects := rand.New(rand.NewPCG(uint64(part), 5)), map[int]object{}
			for size := 0; !l.over.Load(); size++ {
				l.change(client, random, objects, part+clients*random.IntN(loadObjects/clients), size)
			}
		})
	}
}

// change creates, changes or deletes an object. At times it creates it again at once.
func (l *keyedLoad) change(client dynamic.ResourceInterface, random *rand.Rand, objects map[int]object, n, size int) {
	if obj := objects[n]; obj != nil {
		if random.IntN(2) == 0 {
			l.update(client, name(n), size)
			return
		}
		l.remove(client, name(n))
		l.mu.Lock()
		l.deleted[obj.GetUID()] = obj
		l.mu.Unlock()
		delete(objects, n)
		if random.IntN(3) > 0 {
			return
		}
	}
	obj, controls := l.widget(name(n), size), true
	// No other object leads to these keys: a later event would make up for a delete that is lost.
	only := l.made.Add(1)
	obj.SetLabels(map[string]string{"of": fmt.Sprint("label-", only)})
	owner := fmt.Sprint("owner-", only)
	obj.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: killedOwner.Group + "/v1", Kind: killedOwner.Kind, Name: owner, UID: types.UID(owner), Controller: &controls,
	}})
	obj, err := client.Create(l.t.Context(), obj, metav1.CreateOptions{})
	if l.do(err); err == nil {
		objects[n] = obj
	}
}

func TestControllersOfAKilledProcessMissNoDelete(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for more than a minute")
	}
	begun := time.Now()
	w, dir := newWorldOf(t, "controllers.example.com"), t.TempDir()
	config := server.Config()
	k := killed{
		Host: config.Host, Token: config.BearerToken, CA: config.CAData, Resource: w.gvr, Controllers: true,
		Path: filepath.Join(dir, "widgets.db"), Before: filepath.Join(dir, "before"), Record: filepath.Join(dir, "record"),
	}
	l := &keyedLoad{load: load{world: w}, deleted: map[types.UID]object{}}
	l.follow()
	l.start()
	defer l.stop()
	random := rand.New(rand.NewPCG(1, 5))
	for round := range *kills {
		p, way := w.startKilled(k), round%ways
		if way != whileItStarts {
			p.until(t, "synced")
		}
		least, most := 0, 500
		if way == anyMoment {
			least, most = 1500, 4000 // long enough for the informer to forget tombstones
		}
		<-time.After(time.Duration(least+random.IntN(most-least)) * time.Millisecond) // the server runs in real time
		p.kill(t, way == untold || way == torn)
		if way == torn {
			tear(t, k, random)
		}
	}
	l.stop()
	k.Calm = true
	p := w.startKilled(k)
	p.until(t, "synced")
	late := time.AfterFunc(patience, func() { _ = p.Process.Kill() })
	p.until(t, "done") // after a minute: until then, a watcher could inherit the tombstones
	late.Stop()
	p.kill(t, false)
	l.checkCalls(k.Record)
	t.Logf("%d kills in %v", *kills, time.Since(begun).Round(time.Second))
}

// checkCalls fails the test if no call for one of the keys of a deleted object has succeeded over
// a store that had the delete. A call may be for another reason: it has seen that the object is gone.
func (l *keyedLoad) checkCalls(path string) {
	l.t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		l.t.Fatal(err)
	}
	type key struct{ controller, name string }
	told, mapped := map[types.UID]bool{}, map[types.UID]bool{}
	newest := map[key]int{} // the highest version that the store had at the beginning of a call
	calls := 0
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		switch words[0] {
		case "+":
			told[types.UID(words[1])] = true
		case "m":
			mapped[types.UID(words[1])] = true
		case "=":
			calls++
			of := key{words[1], words[2]}
			newest[of] = max(newest[of], versionOf(l.t, words[3]))
		}
	}
	gone := l.deletedAt()
	checked, missed := 0, 0
	for uid, obj := range l.deleted {
		for controller, known := range map[string]bool{"objects": told[uid], "labels": mapped[uid]} {
			for _, name := range keysOf(controller, obj) {
				if !known {
					continue
				}
				checked++
				if of := (key{controller, name}); gone[uid] == 0 || newest[of] < gone[uid] {
					if missed++; missed <= 3 {
						l.t.Logf("%s, %s of %s: deleted at version %d, last call at version %d", controller, name, uid, gone[uid], newest[of])
					}
				}
			}
		}
	}
	l.t.Logf("%d calls have succeeded; %d objects were deleted, which led to %d keys", calls, len(l.deleted), checked)
	if missed > 0 {
		l.t.Errorf("%d keys were never reconciled after the delete", missed)
	}
	if checked < len(l.deleted) {
		l.t.Error("too few of the objects were seen")
	}
}

func versionOf(t *testing.T, text string) int {
	t.Helper()
	version, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return version
}
