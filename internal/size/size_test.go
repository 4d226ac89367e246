package size_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/customcacheinformer/informer/internal/size"
)

type named string

type tree struct {
	Name     string
	Bytes    []byte
	Left     *tree
	Children []tree
	Labels   map[string]string
	Any      map[string]any
	Big      map[int][200]byte
	At       time.Time
	Own      any
	hidden   any
}

// These values are made again and again, and what they take on the heap is compared with the estimate.
func TestTheSizeOfValuesIsThatOnTheHeap(t *testing.T) {
	text := func(n int) string { return strings.Repeat("x", n) }
	for name, of := range map[string]func() any{
		"a struct":             func() any { return &tree{} },
		"strings":              func() any { return &tree{Name: text(100), Children: []tree{{Name: text(33)}, {Name: text(5000)}}} },
		"a large string":       func() any { return &tree{Name: text(100_000)} },
		"pointers":             func() any { return &tree{Left: &tree{Left: &tree{}}} },
		"spare capacity":       func() any { return &tree{Bytes: make([]byte, 3, 300)} },
		"a small map":          func() any { return &tree{Labels: map[string]string{text(20): text(30)}} },
		"a map of 8":           func() any { return &tree{Labels: numbered(8)} },
		"a map of 9":           func() any { return &tree{Labels: numbered(9)} },
		"a map of 100":         func() any { return &tree{Labels: numbered(100)} },
		"a map of 2,000":       func() any { return &tree{Labels: numbered(2000)} },
		"a map of large items": func() any { return &tree{Big: map[int][200]byte{1: {}, 2: {}, 3: {}}} },
		"values of JSON": func() any {
			return &tree{Any: map[string]any{"a": text(50), "b": int64(1 << 40), "c": 1.5, "d": true, "e": nil, "f": []any{text(20), map[string]any{"g": named(text(40))}}}}
		},
		"a time":                       func() any { return &tree{At: time.Now()} },
		"fields that are not exported": func() any { return &tree{hidden: &tree{Name: text(64)}} },
	} {
		const n = 200
		all := make([]any, n)
		before := heap()
		for i := range all {
			all[i] = of()
		}
		took := float64(heap()-before) / n
		if got := float64(size.Of(all[0])); got < took*0.85-16 || got > took*1.1+16 {
			t.Errorf("%s takes %.0f bytes, estimated %.0f", name, took, got)
		}
		runtime.KeepAlive(all)
	}
}

func numbered(n int) map[string]string {
	m := map[string]string{}
	for i := range n {
		m[fmt.Sprintf("the key %08d", i)] = fmt.Sprintf("the value %014d", i)
	}
	return m
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func TestMemoryReferredToTwiceCountsOnce(t *testing.T) {
	shared := &tree{Name: strings.Repeat("x", 1000)}
	if once, twice := size.Of(&tree{Left: shared}), size.Of(&tree{Left: shared, Own: shared}); once != twice {
		t.Errorf("%d and %d bytes", once, twice)
	}
	cycle := &tree{}
	cycle.Left = cycle
	if got, want := size.Of(cycle), size.Of(&tree{}); got != want {
		t.Errorf("a cycle takes %d bytes, want %d", got, want)
	}
}

func TestOddValuesHaveASize(t *testing.T) {
	for _, v := range []any{nil, 1, "", "text", struct{}{}, &struct{}{}, func() {}, make(chan int), []any{nil}, (*tree)(nil), [2]string{}, &tree{Own: [2]string{"a"}}} {
		if got := size.Of(v); got < 0 || got > 1000 {
			t.Errorf("%T: %d", v, got)
		}
	}
	endless := make([]*int, 1<<18)
	for i := range endless {
		endless[i] = new(int)
	}
	if got := size.Of(&endless); got <= 0 {
		t.Errorf("an object of many pieces: %d", got)
	}
}
