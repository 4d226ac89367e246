package model_test

import (
	"flag"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var (
	modelOperations = flag.Int("model-operations", 60_000, "number of operations to play; a tenth of it with -short")
	modelSeed       = flag.Int64("model-seed", -1, "play only the sequence with this seed")
)

// TestModel plays random sequences of everything that can happen to an informer, its source,
// its store and its watchers, and checks the promises of the documentation. If a sequence breaks
// one, TestModel removes deeds and simplifies the setting as long as the sequence still fails,
// and shows the result. The reference is in reference_test.go, the checks are in audit_test.go.
func TestModel(t *testing.T) {
	left := *modelOperations
	switch {
	case *modelSeed >= 0:
		left = 1
	case testing.Short():
		left /= 10
	}
	var failed, played atomic.Int64
	t.Cleanup(func() { t.Logf("%d operations", played.Load()) })
	for seed := max(*modelSeed, 0); left > 0; seed++ {
		program := randomProgram(uint64(seed))
		left -= len(program.deeds())
		t.Run(strconv.FormatInt(seed, 10), func(t *testing.T) {
			t.Parallel()
			if failed.Load() > 2 {
				t.Skip("enough sequences have failed")
			}
			w := program.play(t)
			played.Add(int64(len(program.deeds())))
			if len(w.problems) > 0 {
				failed.Add(1)
				t.Errorf("the original sequence:\n%s", w)
				least, w := program.shrink(t, w)
				t.Errorf("the shortest sequence that fails:\n%s\nto play the original sequence again:\n  go test -run 'TestModel$' ./internal/model -model-seed %d\nas an input of FuzzModel:\n  []byte(%q)", w, seed, least)
			}
		})
	}
}

// FuzzModel plays sequences that a fuzzer makes up. The sequences under testdata have broken
// something before, or resemble ones that have.
func FuzzModel(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > settingSize+3*200 {
			t.Skip("too long")
		}
		if w := program(data).play(t); len(w.problems) > 0 {
			t.Errorf("%s", w)
		}
	})
}

// program is a sequence: a setting, and three bytes for each deed. The fuzzer can therefore play
// the sequences of TestModel.
type program []byte

// deed is one operation; a and b are its parameters. After a deed the test waits until all
// goroutines are blocked, unless atOnce is set.
type deed struct {
	what   int // index in deeds
	a, b   byte
	atOnce bool
}

func (p program) setting() setting {
	var bytes [settingSize]byte
	copy(bytes[:], p)
	return newSetting(bytes)
}

func (p program) deeds() []deed {
	var all []deed
	for i := settingSize; i+3 <= len(p); i += 3 {
		all = append(all, deed{int(p[i]&0x7f) % len(deeds), p[i+1], p[i+2], p[i]&0x80 != 0})
	}
	return all
}

func randomProgram(seed uint64) program {
	r := rand.New(rand.NewPCG(seed, 5))
	var bag []byte
	for what, d := range deeds {
		bag = append(bag, slices.Repeat([]byte{byte(what)}, d.weight)...)
	}
	p := make(program, settingSize, settingSize+3*140)
	for i := range p {
		p[i] = byte(r.Uint32())
	}
	for range 20 + r.IntN(120) {
		what := bag[r.IntN(len(bag))]
		if r.IntN(3) == 0 {
			what |= 0x80
		}
		p = append(p, what, byte(r.Uint32()), byte(r.Uint32()))
	}
	return p
}

// play plays the sequence until a promise is broken.
func (p program) play(t *testing.T) (w *torture) {
	defer func() {
		// synctest panics if goroutines are left in the bubble or wait for each other.
		if stuck := recover(); stuck != nil {
			w.problem("%v", stuck)
		}
	}()
	synctest.Test(t, func(*testing.T) {
		w = newTorture(p.setting())
		for _, d := range p.deeds() {
			if w.broken() {
				break
			}
			w.do(d)
		}
		w.finish()
	})
	return w
}

// shrink removes each deed that the failure does not need, and simplifies the setting. It
// stops after 20 s. The goroutines run in another order each time, so shrink tries each change
// four times.
func (p program) shrink(t *testing.T, w *torture) (program, *torture) {
	begun := time.Now()
	try := func(next program) {
		for i := 0; i < 4 && time.Since(begun) < 20*time.Second; i++ {
			if again := next.play(t); len(again.problems) > 0 {
				p, w = next, again
				return
			}
		}
	}
	for size := len(p.deeds()); size > 0; size /= 2 {
		for i := len(p.deeds()) - size; i >= 0; i -= size {
			from := settingSize + 3*i
			if from+3*size <= len(p) {
				try(slices.Delete(slices.Clone(p), from, from+3*size))
			}
		}
	}
	for i := range p {
		for _, plain := range []byte{0, p[i] & 0x0f, p[i] & 0xf0, p[i] & 0x7f} {
			if p[i] != plain {
				next := slices.Clone(p)
				next[i] = plain
				try(next)
			}
		}
	}
	return p, w
}
