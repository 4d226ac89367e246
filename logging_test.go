package informer_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
)

// logged returns a ctx with a logger, and the lines that it has kept, up to a verbosity.
func logged(ctx context.Context, verbosity int) (context.Context, func() ktesting.Log) {
	logger := ktesting.NewLogger(ktesting.NopTL{}, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(verbosity)))
	return klog.NewContext(ctx, logger), logger.GetSink().(ktesting.Underlier).GetBuffer().Data
}

// startLogged is like start, with a logger that keeps every line. Lines that bypass the logger
// of the ctx are kept too.
func startLogged(t *testing.T, inf *ci) (stop func(), lines func() ktesting.Log) {
	t.Helper()
	ctx, lines := logged(context.WithoutCancel(t.Context()), 9)
	t.Cleanup(klog.CaptureState().Restore)
	klog.SetLogger(klog.FromContext(ctx))
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- inf.Run(ctx) }()
	stop = sync.OnceFunc(func() { cancel(); noError(t, <-done) })
	t.Cleanup(stop) // before the logger is restored
	return stop, lines
}

// logLine is one kind of line, as the package documentation lists it.
type logLine struct{ level, text string }

func lineOf(e ktesting.LogEntry) logLine {
	switch {
	case e.Type == ktesting.LogError:
		return logLine{"ERROR", e.Message}
	case e.Verbosity == 0:
		return logLine{"INFO", e.Message}
	}
	return logLine{fmt.Sprintf("V(%d)", e.Verbosity), e.Message}
}

// documentedLines returns the lines that the section Logging of a file lists, such as doc.go.
func documentedLines(t *testing.T, file string) map[logLine]bool {
	t.Helper()
	lines := map[logLine]bool{}
	doc, err := os.ReadFile(file)
	if !errors.Is(err, fs.ErrNotExist) { // then it has none
		noError(t, err)
	}
	_, section, _ := strings.Cut(string(doc), "// # Logging\n")
	section, _, _ = strings.Cut(section, "// # ")
	for _, row := range regexp.MustCompile(`(?m)^//\t(\S+) +(.+)$`).FindAllStringSubmatch(section, -1) {
		lines[logLine{row[1], row[2]}] = true
	}
	return lines
}

// loggedLines returns the lines that the packages of the root module log, by the file that
// must document them: the doc.go of the package, and for internal packages that of the root.
func loggedLines(t *testing.T) map[string]map[logLine]bool {
	t.Helper()
	lines := map[string]map[logLine]bool{}
	for dir, files := range moduleFiles(t) {
		doc := filepath.Join(dir, "doc.go")
		if strings.HasPrefix(filepath.ToSlash(dir), "internal/") {
			doc = "doc.go"
		}
		if lines[doc] == nil {
			lines[doc] = map[logLine]bool{}
		}
		fset, logs := token.NewFileSet(), false
		var parsed []*ast.File
		for _, name := range files {
			file := must(parser.ParseFile(fset, name, nil, parser.SkipObjectResolution))
			parsed = append(parsed, file)
			for _, imported := range file.Imports {
				logs = logs || strings.Contains(imported.Path.Value, "k8s.io/klog") || strings.Contains(imported.Path.Value, "logr")
			}
		}
		if !logs { // Info and Error are methods of something that is not a logger
			continue
		}
		for _, file := range parsed {
			ast.Inspect(file, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok {
					if line, err := loggedLine(call); err != nil {
						t.Errorf("%v: %v", fset.Position(call.Pos()), err)
					} else if line != (logLine{}) {
						lines[doc][line] = true
					}
				}
				return true
			})
		}
	}
	return lines
}

var (
	pastTheCtx = regexp.MustCompile(`^klog\.(Info|Warning|Error|Fatal|Exit|V\()`)
	infoAt     = regexp.MustCompile(`(?:\.(V\([^()]*\)))?\.Info$`)
)

// loggedLine returns the line that a call logs, or an empty logLine if the call does not log.
func loggedLine(call *ast.CallExpr) (line logLine, err error) {
	text, method := 0, types.ExprString(call.Fun)
	if pastTheCtx.MatchString(method) {
		return line, errors.New("logs past the logger of the ctx")
	} else if strings.HasSuffix(method, ".Error") && len(call.Args) > 1 && method != "http.Error" {
		line.level, text = "ERROR", 1
	} else if at := infoAt.FindStringSubmatch(method); at != nil && len(call.Args) > 0 {
		line.level = cmp.Or(at[1], "INFO")
	} else {
		return line, nil
	}
	line.text, err = strconv.Unquote(types.ExprString(call.Args[text])) // an error if it is not a constant
	return line, err
}

func TestTheDocumentationListsEveryLoggedLine(t *testing.T) {
	logged := loggedLines(t)
	for file, lines := range logged {
		equal(t, "the lines in "+file+" and the code", lines, documentedLines(t, file))
	}
	if root, enqueue := logged["doc.go"], logged[filepath.Join("enqueue", "doc.go")]; len(root) < 11 || len(enqueue) < 3 {
		t.Errorf("found %v", logged)
	}
}

// TestEachChangeOfStateIsOneLine makes every event happen once that the documentation lists as
// logged.
func TestEachChangeOfStateIsOneLine(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		lines := troubledLife(t, queue)
		got, fromClientGo := map[logLine]int{}, 0
		for _, e := range lines {
			if e.Type == ktesting.LogInfo && e.Verbosity > 2 {
				fromClientGo++
				continue
			}
			got[lineOf(e)]++
			if !slices.Contains(slices.Concat(e.WithKVList, e.ParameterKVList), any("informer")) {
				t.Errorf("%q does not name the informer", e.Message)
			}
		}
		want := map[logLine]int{}
		for line := range documentedLines(t, "doc.go") {
			want[line] = 1
		}
		delete(want, otherNamespaces)
		delete(want, otherClusters)
		want[logLine{"ERROR", "Informer reports an error"}] = 6 // source, store, two objects, event, and the end of the retries of that event
		equal(t, "logged as often", got, want)
		if fromClientGo == 0 {
			t.Error("nothing of client-go was captured")
		}
	})
}

// Each of these has a test of its own.
var (
	otherNamespaces = logLine{"V(2)", "The informer reads other namespaces"}
	otherClusters   = logLine{"V(2)", "The informer reads other clusters"}
)

// said returns the keys and values of all lines of a kind.
func said(log ktesting.Log, line logLine) (all []any) {
	for _, e := range log {
		if lineOf(e) == line {
			all = append(all, e.ParameterKVList...)
		}
	}
	return all
}

func TestAChangedSetOfClustersIsOneLineForEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inf := must(informer.NewOverClusters(options{}, informer.ClusterOptions{}))
		_, lines := startLogged(t, inf.CustomCacheInformer)
		synctest.Wait()
		noError(t, inf.Engage("east", informer.ClusterSource{Source: informertest.NewSource[configMap]()}))
		_, err := inf.Disengage("east", informer.LeaveSilently)
		noError(t, err)
		synctest.Wait()
		equal(t, "logged", said(lines(), otherClusters), []any{"added", "east", "removed", "", "added", "", "removed", "east"})
	})
}

func TestAChangedSetOfNamespacesIsOneLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inf := must(informer.NewInNamespaces(informertest.NewSource[configMap]().Namespace, []string{"old"}, options{}))
		_, lines := startLogged(t, inf)
		synctest.Wait()
		var set []string
		for n := range 12 {
			set = append(set, fmt.Sprint("n", n))
		}
		for range 2 {
			noError(t, inf.SetNamespaces(set))
			synctest.Wait()
		}
		equal(t, "logged", said(lines(), otherNamespaces), []any{"added", "n0 n1 n2 n3 n4 n5 n6 n7 n8 n9 and 2 more", "removed", "old"})
	})
}

func troubledLife(t *testing.T, queue informer.QueueKind) ktesting.Log {
	src, store := informertest.NewSource(object("a", "1")), informertest.NewStore(nil)
	src.SetFaults(informertest.Faults{IgnoreWatchList: true})
	inf := must(informer.NewFrom(src, options{Queue: queue, Store: store, WatchList: informer.WatchListOn, Transform: needsOwner}))
	pause := time.Second
	slow := func(context.Context, event) error { time.Sleep(pause); return nil }
	addWatcher(t, inf, informer.WatcherFunc[configMap](slow), informer.WatcherOptions{Name: "slow", MaxBacklog: 3})
	picky := func(_ context.Context, e event) error {
		return errorIf(e.Object().Data["value"] == "bad", errors.New("cannot be handled"))
	}
	addWatcher(t, inf, informer.WatcherFunc[configMap](picky), informer.WatcherOptions{Retry: informer.Backoff(time.Second, time.Minute, 20)})
	stop, lines := startLogged(t, inf)
	sleepBubble(time.Minute)

	shared := inf.SharedIndexInformer()
	must(shared.AddEventHandlerWithResyncPeriod(cache.ResourceEventHandlerFuncs{}, time.Minute))
	shared.RunWithContext(t.Context())

	unreachable(src)
	src.Compact()
	sleepBubble(hour)
	src.Heal()
	sleepBubble(time.Minute)
	src.Apply(object("a", "2"))
	synctest.Wait()

	store.Fail(func(op, key string) error { return fmt.Errorf("%s of %s: disk full", op, key) })
	src.Apply(object("a", "3"))
	sleepBubble(hour)
	store.Heal()
	sleepBubble(time.Minute)

	for _, pause = range []time.Duration{time.Second, 20 * time.Second} { // the first pause is too short for a line
		for n := range 10 {
			src.Apply(object("a", fmt.Sprint("in a hurry ", n)))
			synctest.Wait()
		}
		sleepBubble(10 * time.Minute)
	}

	for _, value := range []string{"", "", "owned"} {
		src.Apply(object("x", value))
		src.Apply(object("y", ""))
		synctest.Wait()
	}
	_, _ = src.Delete(keyOf("y"))
	sleepBubble(10 * time.Minute)

	src.Apply(object("a", "bad"))
	sleepBubble(hour)

	hold := make(chan struct{})
	stuck := func(context.Context, event) error { <-hold; return nil }
	addWatcher(t, inf, informer.WatcherFunc[configMap](stuck), informer.WatcherOptions{Name: "stuck"})
	src.Apply(object("b", "waits for it"))
	synctest.Wait()
	waited := asking(func() error { return inf.WaitForSync(t.Context()) })
	sleepBubble(time.Minute)
	time.AfterFunc(hour, func() { close(hold) })
	stop()
	fails(t, <-waited, informer.ErrStopped)
	return lines()
}

func TestLogErrorShowsWhereAPanicWas(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		inf := must(informer.NewFrom(informertest.NewSource(object("bad", "")), options{Queue: queue}))
		reg := addWatcher(t, inf, informer.WatcherFunc[configMap](panicky), informer.WatcherOptions{RecoverPanics: true})
		stop, lines := startLogged(t, inf)
		<-reg.Synced()
		stop()
		for _, e := range lines() {
			if e.Type != ktesting.LogError {
				continue
			}
			if strings.Contains(e.Err.Error(), "\n") || !strings.Contains(fmt.Sprint(e.ParameterKVList...), "informer_test.panicky(") {
				t.Errorf("logged %v with %v", e.Err, e.ParameterKVList)
			}
			return
		}
		t.Error("logged no error")
	})
}

func TestALateWatcherIsNamedWhileTheObserverTakesItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(object("a", "1"))
		merges := 0
		inf := newInformer(t, src, options{Observer: &informer.Observer{Merged: func(informer.BacklogInfo) {
			if merges++; merges > 1 {
				time.Sleep(11 * time.Second)
			}
		}}})
		stuck := func(ctx context.Context, _ event) error { <-ctx.Done(); return nil }
		addWatcher(t, inf, informer.WatcherFunc[configMap](stuck), informer.WatcherOptions{MaxBacklog: 1})
		_, lines := startLogged(t, inf)
		for n := range 10 {
			synctest.Wait()
			src.Apply(object("a", fmt.Sprint("v", n)))
		}
		sleepBubble(time.Minute)
		said := 0
		for _, line := range lines() {
			if strings.HasPrefix(line.Message, "A watcher is behind") {
				said++
			}
		}
		if merges < 2 || said != 1 {
			t.Errorf("logged %d times, after %d merges", said, merges)
		}
	})
}
