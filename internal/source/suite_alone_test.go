package source_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/customcacheinformer/informer/internal/source"
	"github.com/customcacheinformer/informer/internal/stopwatch"
)

// The tests in *_alone_test.go test a Source without an informer. The server follows a script,
// and the sink records every call.

// answer is the server's answer to one request.
type answer struct {
	list  runtime.Object
	watch func() watch.Interface // opens the watch; nil for none
	err   error
	hold  <-chan struct{} // the request hangs until hold is closed, even if its ctx ends
}

func fails(err error) answer { return answer{err: err} }
func watches(w watch.Interface) answer {
	return answer{watch: func() watch.Interface { return w }}
}
func lists(version string, objs ...runtime.Object) answer {
	return page(version, "", objs...)
}

// page answers with a part of a list. The next part must be requested with next.
func page(version, next string, objs ...runtime.Object) answer {
	list := &metav1.List{ListMeta: metav1.ListMeta{ResourceVersion: version, Continue: next}}
	for _, obj := range objs {
		list.Items = append(list.Items, runtime.RawExtension{Object: obj})
	}
	return answer{list: list}
}

func sends(events ...watch.Event) answer {
	return answer{watch: func() watch.Interface { return open(events...) }}
}

func ends(events ...watch.Event) answer {
	return answer{watch: func() watch.Interface {
		w := open(events...)
		w.Stop()
		return w
	}}
}

func open(events ...watch.Event) *stream {
	w := &stream{events: make(chan watch.Event, max(100, len(events)))}
	for _, e := range events {
		w.events <- e
	}
	return w
}

// stream is a watch that sends the events of a channel until it is stopped.
type stream struct {
	events chan watch.Event

	mu      sync.Mutex // protects stopped
	stopped bool
}

func (s *stream) ResultChan() <-chan watch.Event { return s.events }

func (s *stream) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopped {
		s.stopped = true
		close(s.events)
	}
}

// send sends an event, and reports false if the stream has been stopped.
func (s *stream) send(e watch.Event) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopped {
		s.events <- e
	}
	return !s.stopped
}

func versioned(name, version string) runtime.Object {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: version}}
}

func added(name, version string) watch.Event {
	return watch.Event{Type: watch.Added, Object: versioned(name, version)}
}
func modified(name, version string) watch.Event {
	return watch.Event{Type: watch.Modified, Object: versioned(name, version)}
}
func deleted(name, version string) watch.Event {
	return watch.Event{Type: watch.Deleted, Object: versioned(name, version)}
}
func bookmark(version string) watch.Event {
	return watch.Event{Type: watch.Bookmark, Object: versioned("", version)}
}

// complete returns the bookmark that ends the initial state of a stream.
func complete(version string) watch.Event {
	e := bookmark(version)
	e.Object.(*corev1.ConfigMap).Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	return e
}

// play is a running Source whose server follows a script. After the last answer of the script,
// requests hang until their ctx ends.
type play struct {
	t      *testing.T
	source *source.Source
	stop   func() // stops the source and waits for it

	callbacks source.Callbacks
	tellsAll  bool // also sets the callbacks that may be nil
	paged     bool // the source lists in pages

	mu     sync.Mutex    // protects the rest
	block  chan struct{} // the sink blocks until it is closed; nil for never
	script []answer
	asked  []string // all requests
	log    []string // all calls of the sink
	told   []string // all calls of the callbacks
}

// aloneOptions returns the options of a source that lists and retries after a second.
func aloneOptions() source.Options {
	return source.Options{Name: "ConfigMap", ListOnly: true, Backoff: wait.Backoff{Duration: time.Second, Steps: 1000}}
}

func streaming() source.Options {
	opts := aloneOptions()
	opts.ListOnly = false
	return opts
}

// scene is a script of the server, and what a source does with it.
type scene struct {
	opts    source.Options
	version string // given to Run
	script  []answer
	takes   time.Duration // until all of the rest has happened

	asked, received, told []string
}

func (s scene) play(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		startAlone(t, s.opts, s.version, s.script...).after(s.takes, s.asked, s.received, s.told)
	})
}

func playAll(t *testing.T, scenes map[string]scene) {
	for name, s := range scenes {
		t.Run(name, s.play)
	}
}

// startAlone runs a source from version. answers are the script of the server.
func startAlone(t *testing.T, opts source.Options, version string, answers ...answer) *play {
	t.Helper()
	p := &play{t: t, script: answers}
	p.run(opts, version)
	return p
}

func (p *play) run(opts source.Options, version string) {
	p.runWith(opts, func(ctx context.Context) { p.source.Run(ctx, p, version) })
}

// runWith calls run, which must call one of the Run methods of p.source.
func (p *play) runWith(opts source.Options, run func(ctx context.Context)) {
	p.callbacks = source.Callbacks{
		Failed:   func(_ context.Context, f *source.Failure) { p.tell("%s failed: %v", f.Op, f.Err) },
		Unusable: func(_ context.Context, err error) { p.tell("unusable: %v", err) },
	}
	if p.tellsAll {
		p.callbacks.Listed = func(l source.List) { p.tell("listed %d objects in %v: %v", l.Objects, l.Took, l.Err) }
		p.callbacks.Watched = func(w source.Watch) {
			p.tell("watched %d events in %v, streaming %t: %v", w.Events, w.Took, w.Streaming, w.Err)
		}
		p.callbacks.WatchFailed = func(_ context.Context, _ *cache.Reflector, err error) { p.tell("client-go: %v", err) }
	}
	p.paged = opts.PageSize > 0
	p.source = source.New(p, stopwatch.New(), opts, p.callbacks)
	ctx, cancel := context.WithCancel(klog.NewContext(p.t.Context(), klog.Logger{})) // logs nothing
	var running sync.WaitGroup
	running.Go(func() { run(ctx) })
	p.stop = func() { cancel(); running.Wait() }
	p.t.Cleanup(p.stop)
	synctest.Wait()
}

func (p *play) tell(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.told = append(p.told, fmt.Sprintf(format, args...))
}

// expect compares the requests, the sink's log and the callbacks since the last call.
func (p *play) expect(asked, log, told []string) {
	p.t.Helper()
	synctest.Wait()
	defer p.forget()
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, c := range map[string][2][]string{"asked": {asked, p.asked}, "received": {log, p.log}, "told": {told, p.told}} {
		if !slices.Equal(c[0], c[1]) {
			p.t.Errorf("%s (-want +got):\n%s", name, cmp.Diff(c[0], c[1]))
		}
	}
}

// after waits for d and then calls expect.
func (p *play) after(d time.Duration, asked, log, told []string) {
	p.t.Helper()
	time.Sleep(d)
	p.expect(asked, log, told)
}

// counts returns the number of requests, of the sink's calls and of the callbacks since the
// last call of expect.
func (p *play) counts() (asked, received, told int) {
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.asked), len(p.log), len(p.told)
}

// reports returns the calls of the callbacks since the last call of expect.
func (p *play) reports() []string {
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.told)
}

// forget drops all that expect would compare and counts would count.
func (p *play) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked, p.log, p.told = nil, nil, nil
}

func (p *play) goOn(answers ...answer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.script = append(p.script, answers...)
}

// blockSink makes the sink block until release is called.
func (p *play) blockSink() (release func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	block := make(chan struct{})
	p.block = block
	return func() { close(block) }
}

// next takes an answer from the script.
func (p *play) next(ctx context.Context, request string) answer {
	p.mu.Lock()
	p.asked = append(p.asked, request)
	var a answer
	if len(p.script) == 0 {
		a = answer{err: context.Canceled, hold: ctx.Done()}
	} else {
		a, p.script = p.script[0], p.script[1:]
	}
	p.mu.Unlock()
	if a.hold != nil {
		<-a.hold
	}
	return a
}

func (p *play) ListWithContext(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	request := "list as of " + opts.ResourceVersion
	switch {
	case opts.Continue != "":
		request = "page " + opts.Continue
	case opts.Limit == 1:
		request = "probe"
	case opts.ResourceVersion == "":
		request = "list the newest"
		if p.paged && opts.Limit == 0 {
			request += ", whole"
		}
	}
	a := p.next(ctx, request)
	return a.list, a.err
}

func (p *play) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	request := "watch from " + opts.ResourceVersion
	if opts.SendInitialEvents != nil {
		request = "stream"
	}
	a := p.next(ctx, request)
	if a.watch == nil {
		return nil, a.err
	}
	return a.watch(), a.err
}

func (p *play) List(metav1.ListOptions) (runtime.Object, error)   { panic("not called") }
func (p *play) Watch(metav1.ListOptions) (watch.Interface, error) { panic("not called") }

func (p *play) receive(format string, args ...any) {
	p.mu.Lock()
	p.log = append(p.log, fmt.Sprintf(format, args...))
	block := p.block
	p.mu.Unlock()
	if block != nil {
		<-block
	}
}

func nameOf(obj any) string { return obj.(*corev1.ConfigMap).Name }

func (p *play) Upsert(obj any, version string) { p.receive("upsert %s, at %q", nameOf(obj), version) }
func (p *play) Delete(obj any, version string) { p.receive("delete %s, at %q", nameOf(obj), version) }
func (p *play) Bookmark(version string)        { p.receive("bookmark %s", version) }
func (p *play) Resumed(version string)         { p.receive("resumed %s", version) }

func (p *play) Example() any { return nil }

func (p *play) Begin(doubtful bool) {
	if doubtful {
		p.receive("begin, doubtful")
	} else {
		p.receive("begin")
	}
}
func (p *play) End(version string) { p.receive("end at %q", version) }

func (p *play) Replace(list []any, version string, doubtful bool) {
	var names []string
	for _, obj := range list {
		names = append(names, nameOf(obj))
	}
	slices.Sort(names)
	back := ""
	if doubtful {
		back = ", went back"
	}
	p.receive("list [%s] at %q%s", strings.Join(names, " "), version, back)
}

func (p *play) CheckType(obj any) error {
	if _, ok := obj.(*corev1.ConfigMap); !ok {
		return errors.New("no config map")
	}
	return nil
}

// lines is shorthand for []string.
func lines(l ...string) []string { return l }

func wentBack(from, to string) string {
	return "list failed: the server has gone back in time: its state of resourceVersion " + to + " takes the place of that of " + from
}
