package enqueue_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/testkit"
)

// planOf returns the operations of a history, one a line, with times in milliseconds. No operation depends on
// how the program behaves: if a process crashes early, only the rest of its life is left out.
func planOf(seed uint64) (plan []string) {
	random := rand.New(rand.NewPCG(seed, 1))
	short := strings.NewReplacer(" lose=0", "", " crash=0", "", " overdue=-", "", " owner=0", "", " label=0", "", " dying=0", "", " pause=0", "")
	for life := range 2 + random.IntN(4) {
		step := 0
		add := func(format string, args ...any) {
			plan = append(plan, fmt.Sprintf("life %d, step %d: %s", life+1, step, short.Replace(fmt.Sprintf(format, args...))))
			step++
		}
		add("start wins=%d lose=%d crash=%d overdue=%c", random.IntN(5000),
			max(0, random.IntN(13)-8), max(0, random.IntN(80)-39), "abcdef--------------"[random.IntN(20)])
		for range 5 + random.IntN(30) {
			what, pause := "wait", random.IntN(5000)
			switch n := random.IntN(100); {
			case n < 70:
				what = randomChange(random)
				if percent(random, 50) {
					pause = 0 // the next change comes at once
				}
			case n < 75:
				what = "disconnect"
			case n < 78:
				what = "expire"
			case n < 81:
				what = "join"
			case n < 83:
				what = "remove " + controllersOf[random.IntN(len(controllersOf))].name
			case n < 84:
				what = "lose the lease"
			case n < 90:
				pause += 120_000
			}
			add("%s pause=%d", what, pause)
		}
		add("%s after=%d", []string{"stop", "crash"}[random.IntN(2)], random.IntN(1000))
		for range random.IntN(8) { // the program is down
			add("%s", randomChange(random))
		}
		if percent(random, 20) {
			add("compact")
		}
	}
	return plan
}

// randomChange returns a change of an object, which creates the object if there is none. The owner and the label
// may be 0, which is none. An update may mark the object as being deleted, or remove another finalizer.
func randomChange(random *rand.Rand) string {
	what := "replace"
	switch n := random.IntN(100); {
	case n < 40:
		what = "update"
	case n < 76:
		what = "delete"
	}
	return fmt.Sprintf("%s or create %c owner=%d label=%d dying=%d", what, 'a'+random.IntN(6), random.IntN(4), random.IntN(4), random.IntN(10)/7)
}

// do lets an operation happen, unless the process has crashed before it. It adds it to the operations that
// were played.
func (h *history) do(line string) {
	head, text, _ := strings.Cut(line, ": ")
	what, rest, _ := strings.Cut(text, " ")
	with, words := map[string]string{}, []string{}
	for _, word := range strings.Fields(rest) {
		if name, value, is := strings.Cut(word, "="); is {
			with[name] = value
		} else {
			words = append(words, word)
		}
	}
	number := func(name string) (n int) {
		_, err := fmt.Sscan(cmp.Or(with[name], "0"), &n)
		testkit.Must(h.t, err)
		return n
	}
	pass := func(name string) { time.Sleep(time.Duration(number(name)) * time.Millisecond) }
	if h.end != nil && h.ledger.hasCrashed() {
		if what != "stop" && what != "crash" {
			return
		}
		line = head + ": " + strings.Replace(text, "stop", "crash", 1)
	}
	h.played = append(h.played, line)
	switch rest = strings.Join(words, " "); what {
	case "start":
		h.ledger = h.ledger.reopen(number("lose"), false)
		h.ledger.crashAt = number("crash")
		_, err := fmt.Sscanf(head, "life %d", &h.ledger.life)
		testkit.Must(h.t, err)
		h.start(with["overdue"], time.Duration(number("wins"))*time.Millisecond)
	case "stop", "crash":
		pass("after")
		if what == "crash" {
			h.ledger.crash()
		}
		h.end()
	case "update", "delete", "replace":
		h.change(what, words[len(words)-1], number("owner"), number("label"), number("dying") > 0)
	case "disconnect":
		h.source.Disconnect()
	case "expire":
		h.source.Expire()
	case "compact":
		h.source.Compact()
	case "join":
		if !slices.ContainsFunc(h.pods.Health().Watchers, func(w informer.WatcherHealth) bool { return w.Name == "late" }) {
			h.watch("late", informer.WatcherOptions{})
		}
	case "remove":
		if c := h.controllers[rest]; c != nil {
			delete(h.controllers, rest)
			h.ledger.release(rest)
			testkit.Must(h.t, h.group.Remove(c))
		}
	case "lose":
		h.lose()
		h.under.Range(func(ctx, _ any) bool {
			h.ledger.losses++
			if cause := context.Cause(ctx.(context.Context)); !errors.Is(cause, informer.ErrLeaseLost) {
				h.t.Errorf("the ctx of a call continues without the lease (%v)", cause)
			}
			return true
		})
	case "wait":
	default:
		h.t.Fatalf("an operation that does not exist: %s", line)
	}
	if number("pause") > 0 {
		pass("pause")
		synctest.Wait()
		h.checkKept()
	}
}

// change changes an object in the source, or creates it. An object keeps its label.
func (h *history) change(what, name string, of, label int, dying bool) {
	key, created := key{Namespace: "ns", Name: name}, pod(name)
	if of > 0 {
		ownedBy(fmt.Sprint("owner-", of))(created)
	}
	if label > 0 {
		created.Labels = map[string]string{"of": fmt.Sprint("label-", label)}
	}
	if before, err := h.source.Get(key); err == nil {
		if what == "update" {
			after := before.DeepCopy()
			after.Annotations = map[string]string{"n": fmt.Sprint(len(h.played))}
			after.OwnerReferences = created.OwnerReferences
			if dying {
				after.DeletionTimestamp = &metav1.Time{Time: time.Now()}
			}
			_, err := h.source.Update(after)
			testkit.Must(h.t, err)
			return
		}
		_, err := h.source.Delete(key)
		testkit.Must(h.t, err)
		if what == "delete" {
			return
		}
	}
	_, err := h.source.Create(created)
	testkit.Must(h.t, err)
}

// report prints a history that has failed. Its operations are still the same when planOf has changed.
func (h *history) report(seed uint64) {
	if h.t.Failed() {
		const again = "go test -run TestInNoHistoryIsADeleteLost ./enqueue"
		h.t.Logf("to play it again: %s -history-seed %d\nor, with the lines below in a file: %s -history-file \"$PWD/FILE\"\nseed %d\n%s",
			again, seed, again, seed, strings.Join(h.played, "\n"))
	}
}

// readHistory reads a history that was printed. The file may be the whole output of the test: other lines do
// not matter, and neither do further histories.
func readHistory(t *testing.T, file string) (seed uint64, plan []string) {
	text, err := os.ReadFile(file)
	testkit.Must(t, err)
	for line := range strings.Lines(string(text)) {
		switch line = strings.TrimSpace(line); {
		case strings.HasPrefix(line, "life ") && seed > 0:
			plan = append(plan, line)
		case strings.HasPrefix(line, "seed ") && plan == nil:
			_, err = fmt.Sscanf(line, "seed %d", &seed)
		case strings.HasPrefix(line, "seed "):
			return seed, plan
		}
	}
	if plan == nil || err != nil {
		t.Fatalf("there is no history in %s (%v)", file, err)
	}
	return seed, plan
}

func TestAHistoryIsReadFromTheOutputOfATest(t *testing.T) {
	file, plan := filepath.Join(t.TempDir(), "history"), planOf(7)
	text := "=== RUN   7\n    a_test.go:1: it fails\n    seed 7\n    " + strings.Join(plan, "\n    ") + "\n--- FAIL: 7\n    seed 8\n    life 1, step 0: start\n"
	testkit.Must(t, os.WriteFile(file, []byte(text), 0o600))
	if seed, got := readHistory(t, file); seed != 7 || !slices.Equal(got, plan) {
		t.Errorf("what was read is the history of seed %d:\n%s\nwant:\n%s", seed, strings.Join(got, "\n"), strings.Join(plan, "\n"))
	}
}
