package informertest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// StoreFaults makes the operations of a [Store] or a [Durable] fail, hang or be slow, and counts
// them. Its methods may be called from any goroutine at any time, and do not block. It must not be
// copied.
type StoreFaults struct {
	delays  delays
	writing sync.Map // claimed by the writes under way

	mu     sync.Mutex // protects the fields below
	fail   func(op, key string) error
	after  func(op, key string) error
	calls  map[string]int
	misuse error // the first
}

// Fail sets a function that decides, from now on, which operations fail. If fail returns an error,
// the operation returns that error and has no effect. fail is called once for each operation that
// can return an error, after the operation has waited for Hang and Delay. op is the name of the
// operation, and key the key of its object. [Store] and [Durable] list the names. If the operation
// is not about one object, key is empty, except for "scan" and "apply" of a [Durable]. Several
// goroutines may call fail at once. It may block, and may call the store, but must not write the
// object that the operation writes. If fail is nil, the default, no operation fails. Fail does not
// block.
func (f *StoreFaults) Fail(fail func(op, key string) error) { set(&f.mu, &f.fail, fail) }

// FailAfter is like Fail, but an operation calls fail after it has taken effect, and the effect
// stays even if fail returns an error. An operation that has failed does not call fail. FailAfter
// does not block.
func (f *StoreFaults) FailAfter(fail func(op, key string) error) { set(&f.mu, &f.after, fail) }

// FailRandomly makes each operation fail with the given probability. Half of the failures come
// before the effect of the operation and half after it. FailRandomly replaces the functions set
// by Fail and FailAfter. The same seed makes the same operations fail, if they come in the same
// order. FailRandomly does not block. It panics if probability is not from 0 to 1.
func (f *StoreFaults) FailRandomly(seed uint64, probability float64) {
	if !(probability >= 0 && probability <= 1) { // so that NaN panics, too
		panic(fmt.Sprintf("informertest: FailRandomly: the probability is %v, not from 0 to 1", probability))
	}
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, 0))
	failing := func(probability float64, when string) func(op, key string) error {
		return func(op, key string) error {
			mu.Lock()
			defer mu.Unlock()
			if random.Float64() >= probability {
				return nil
			}
			return fmt.Errorf("informertest: %s of %q failed by chance %s its effect", op, key, when)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = failing(probability/2, "before")
	f.after = failing(probability/(2-probability), "after") // of the operations that did not fail before
}

// Hang makes each operation that begins from now on wait until release or Heal is called. An
// operation of a Durable also stops waiting when its ctx ends. After several calls of Hang, an
// operation waits until all are released. release may be called more than once. An informer that is
// stopped waits for its store, so call release before you stop the informer. Neither Hang nor
// release blocks.
func (f *StoreFaults) Hang() (release func()) { return f.delays.hold() }

// Delay makes each operation that begins from now on wait for d. An operation of a Durable stops
// waiting when its ctx ends. If d is zero or negative, operations do not wait. The default is zero.
// Delay does not block.
func (f *StoreFaults) Delay(d time.Duration) { set(&f.delays.mu, &f.delays.each, d) }

// Heal ends the effects of Fail, FailAfter, FailRandomly, Hang and Delay. An operation that
// already waits for a Delay still waits for the rest of it. Heal does not block.
func (f *StoreFaults) Heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail, f.after = nil, nil
	f.delays.heal()
}

// Calls returns how many operations with the name op have begun, including operations that wait or
// have failed. It does not block.
func (f *StoreFaults) Calls(op string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[op]
}

// Err returns the error of the first operation that was called wrongly, see [Store] and [Durable],
// or nil. The operation returned the same error. Err does not block.
func (f *StoreFaults) Err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.misuse
}

// begin counts an operation and waits for Hang and Delay. If ctx ends first, begin returns the
// error of ctx.
func (f *StoreFaults) begin(ctx context.Context, op string) error {
	f.mu.Lock()
	if f.calls == nil {
		f.calls = map[string]int{}
	}
	f.calls[op]++
	f.mu.Unlock()
	return f.delays.wait(ctx)
}

// do runs an operation that can fail.
func (f *StoreFaults) do(ctx context.Context, op, key string, effect func() error) error {
	if err := f.begin(ctx, op); err != nil {
		return err
	}
	if err := f.ask(&f.fail, op, key); err != nil {
		return err
	}
	if err := effect(); err != nil {
		return err
	}
	return f.ask(&f.after, op, key)
}

// ask calls f.fail or f.after.
func (f *StoreFaults) ask(which *func(op, key string) error, op, key string) error {
	f.mu.Lock()
	ask := *which
	f.mu.Unlock()
	if ask == nil {
		return nil
	}
	return ask(op, key)
}

// claim claims what for one operation. It returns false if another operation has claimed it.
// Without claims, two writers could find the same state and both write.
func (f *StoreFaults) claim(what string) bool {
	_, claimed := f.writing.LoadOrStore(what, true)
	return !claimed
}

func (f *StoreFaults) unclaim(what string) { f.writing.Delete(what) }

// misuse is the error of an operation that is refused as wrong use.
type misuse struct{ error }

func (m misuse) Unwrap() error { return m.error }

// refuse returns the error of an operation that is refused as wrong use, and keeps the first such
// error for Err.
func (f *StoreFaults) refuse(op, key string, why error) error {
	err := misuse{fmt.Errorf("informertest: %s of %q: %w", op, key, why)}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.misuse == nil {
		f.misuse = err
	}
	return err
}
