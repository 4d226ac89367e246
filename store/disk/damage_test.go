package disk_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/customcacheinformer/informer/internal/sample"
	"github.com/customcacheinformer/informer/internal/testkit"
	"github.com/customcacheinformer/informer/store/disk"
)

// versions returns the file of a new store, and its file after each step.
func versions(t testing.TB, steps int) (files [][]byte) {
	t.Helper()
	path := newPath(t)
	s := open(t, path, sample.ConfigMap("", ""), disk.Options{Indexers: versionIndexer})
	files = append(files, readFile(t, path))
	h := newHistory()
	for range steps {
		must(t, s.Apply(t.Context(), h.next(), h.bookmark()))
		files = append(files, readFile(t, path))
	}
	return files
}

// whole returns the file of a store after steps.
func whole(t testing.TB, steps int) []byte {
	t.Helper()
	return versions(t, steps)[steps]
}

func readFile(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	return b
}

func writeFile(t *testing.T, path string, b []byte) {
	t.Helper()
	must(t, os.WriteFile(path, b, 0o600))
}

// reopened opens a file that may be damaged, and returns its contents. If Open set the file
// aside, reopened returns the reason instead, and checks that the store is empty and that the
// old file is unchanged. Otherwise it checks that the history can go on.
func reopened(t *testing.T, file []byte) (all []string, aside error) {
	t.Helper()
	path := newPath(t)
	writeFile(t, path, file)
	s, err := disk.Open(path, sample.ConfigMap("", ""), identified(disk.Options{
		Durability: disk.SurviveProcess, Indexers: versionIndexer,
		ErrorHandler: func(err error) { aside = errors.Join(aside, err) },
	}))
	must(t, err)
	all = contents(t, s)
	if aside == nil {
		goOn(t, s)
	}
	must(t, s.Close())
	if aside == nil {
		return all, nil
	}
	var set *disk.SetAsideError
	if !errors.As(aside, &set) {
		t.Fatalf("reported: %v, want that it was set aside", aside)
	}
	if !slices.Equal(all, []string{"bookmark "}) {
		t.Errorf("in the place of what was set aside is %v", all)
	}
	if !bytes.Equal(readFile(t, set.Aside), file) {
		t.Error("what was set aside is not the file")
	}
	return all, aside
}

// goOn makes a few more steps. They would fail if a page were used for two things.
func goOn(t *testing.T, s *disk.Store) {
	t.Helper()
	bookmark, err := s.Resume(t.Context())
	must(t, err)
	step, _ := strconv.Atoi(bookmark)
	for i := range 4 {
		step++
		if err := s.Apply(t.Context(), known()[step].changes, strconv.Itoa(step)); err != nil {
			t.Fatalf("%d steps after it was opened: %v", i, err)
		}
	}
	if want, now := known()[step].contents, contents(t, s); !slices.Equal(want, now) {
		t.Errorf("four steps after it was opened: %s", cut(cmp.Diff(want, now)))
	}
}

// wantWhole fails the test unless a damaged file was set aside or holds the contents after one
// of steps. It reports whether the file was set aside.
func wantWhole(t *testing.T, what string, file []byte, steps ...int) bool {
	t.Helper()
	all, aside := reopened(t, file)
	if aside != nil {
		if !errors.Is(aside, disk.ErrDamaged) {
			t.Errorf("%s: it was set aside, but not for damage: %v", what, aside)
		}
		return true
	}
	for _, step := range steps {
		if slices.Equal(all, known()[step].contents) {
			return false
		}
	}
	diff := cmp.Diff(known()[steps[len(steps)-1]].contents, all)
	t.Errorf("%s: it was opened, and holds what it never held (-then +now): %s", what, cut(diff))
	return false
}

const steps = 30

// flipped returns a copy of a file with a wrong byte.
func flipped(file []byte, at int, bits byte) []byte {
	wrong := slices.Clone(file)
	wrong[at] ^= bits
	return wrong
}

// stride returns the size of some pages: how many with -thorough, by default, and with -short.
func stride(dense, usual, sparse int) int {
	switch {
	case *thorough:
		return dense * disk.PageSize
	case testing.Short():
		return sparse * disk.PageSize
	}
	return usual * disk.PageSize
}

// TestDamageIsNoticed damages a file in many ways. Open must set each result aside, or it must be a whole state.
func TestDamageIsNoticed(t *testing.T) {
	t.Parallel()
	files := versions(t, steps)
	file := files[steps]
	used, pages := usedPages(t, file), len(file)/disk.PageSize
	last := []int{steps, steps - 1} // if one of the first two pages is lost, the file is the state before
	var every []int
	for step := range files {
		every = append(every, step)
	}
	for name, c := range map[string]struct {
		states []int // that the file may have
		least  int   // the percentage of the damaged files that must be set aside
		damage func(random *rand.Rand, try func(wrong []byte))
	}{
		// Pages are at least half full, except the last of each tree. In the rest of a page, a wrong byte does no harm.
		"a wrong byte": {last, 10, func(random *rand.Rand, try func([]byte)) {
			for range often(40, 200) {
				try(flipped(file, used[random.IntN(len(used))]*disk.PageSize+random.IntN(disk.PageSize), 1<<random.IntN(8)))
			}
		}},
		// Most bytes belong to objects. This changes all the others.
		"a wrong byte in the structure": {last, 0, func(random *rand.Rand, try func([]byte)) {
			for page := 0; page < len(file); page += stride(6, 22, 62) {
				for range often(3, 3) {
					try(flipped(file, page+random.IntN(100), 1<<random.IntN(8)))
				}
			}
		}},
		"a page in the place of another": {last, 0, func(random *rand.Rand, try func([]byte)) {
			for i := range often(15, 100) {
				wrong := slices.Clone(file)
				to := wrong[random.IntN(pages)*disk.PageSize:][:disk.PageSize]
				switch i % 3 {
				case 0:
					clear(to)
				case 1:
					copy(to, file[random.IntN(pages)*disk.PageSize:])
				default: // keep the page's number, as if it were an older state of the page
					copy(to[8:], file[random.IntN(pages)*disk.PageSize+8:][:disk.PageSize-8])
				}
				try(wrong)
			}
		}},
		// The key in a branch that leads to a page is in no record, so no checksum covers it. The wrong keys that are not
		// noticed are in pages that are not used.
		"a wrong key of a page": {last[:1], 1, func(_ *rand.Rand, try func([]byte)) {
			for page := 2 * disk.PageSize; page < len(file); page += disk.PageSize {
				if binary.NativeEndian.Uint16(file[page+8:]) != 1 {
					continue
				}
				for i := 0; i < int(binary.NativeEndian.Uint16(file[page+10:])); i += 4 {
					element := page + 16 + 16*i
					for _, bit := range []byte{1, 0x80}[:often(2, 2)] {
						try(flipped(file, element+int(binary.NativeEndian.Uint32(file[element:]))+len("default/o-"), bit))
					}
					if !*thorough {
						break
					}
				}
			}
		}},
		// A disk that loses a write leaves a page that was valid once. If the file can be opened at all, it must be an
		// earlier state of the whole file.
		"an older page": {every, 0, func(random *rand.Rand, try func([]byte)) {
			for page := 2 * disk.PageSize; page < len(file); page += stride(3, 7, 19) {
				older := files[steps-1-random.IntN(steps/2)]
				if page+disk.PageSize > len(older) || bytes.Equal(older[page:page+disk.PageSize], file[page:page+disk.PageSize]) {
					continue
				}
				wrong := slices.Clone(file)
				copy(wrong[page:], older[page:page+disk.PageSize])
				try(wrong)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, noticed := 0, 0
			c.damage(rand.New(rand.NewPCG(1, 1)), func(wrong []byte) {
				n++
				if wantWhole(t, name, wrong, c.states...) {
					noticed++
				}
			})
			t.Logf("%d of %d damaged files were noticed", noticed, n)
			if n == 0 || noticed*100 < c.least*n {
				t.Errorf("%d of %d damaged files were noticed, want at least one file and %d %%", noticed, n, c.least)
			}
		})
	}
}

// A page that is both free and used would be overwritten later.
func TestAUsedPageAmongTheFreeOnesIsNoticed(t *testing.T) {
	t.Parallel()
	file := whole(t, steps)
	first, second := file[16:80], file[disk.PageSize+16:][:64]
	if binary.NativeEndian.Uint64(second[48:]) > binary.NativeEndian.Uint64(first[48:]) {
		first = second
	}
	free := file[binary.NativeEndian.Uint64(first[32:])*disk.PageSize:]
	n := int(binary.NativeEndian.Uint16(free[10:]))
	if n == 0 {
		t.Fatal("there is no free page")
	}
	for i, page := range map[int]uint64{0: binary.NativeEndian.Uint64(first[16:]), n - 1: binary.NativeEndian.Uint64(free[16:])} {
		wrong := slices.Clone(file)
		at := binary.NativeEndian.Uint64(first[32:])*disk.PageSize + 16 + 8*uint64(i)
		binary.NativeEndian.PutUint64(wrong[at:], page)
		if !wantWhole(t, "a used page among the free ones", wrong, steps) {
			t.Errorf("page %d is among the free ones, and was not noticed", page)
		}
	}
}

func TestATruncatedFileIsNoticed(t *testing.T) {
	t.Parallel()
	file := whole(t, steps)
	random := rand.New(rand.NewPCG(4, 1))
	sizes := []int{1, 100, disk.PageSize - 1, disk.PageSize, 2 * disk.PageSize, 4 * disk.PageSize, len(file) - 1}
	for range often(15, 60) {
		sizes = append(sizes, 1+random.IntN(len(file)-1))
	}
	for _, size := range sizes {
		// The end of a file is free room.
		if !wantWhole(t, "a truncated file", file[:size], steps) && size < len(file)/2 {
			t.Errorf("%d of %d bytes were taken for a file", size, len(file))
		}
	}
}

func TestAFileThatDoesNotHoldAStoreIsSetAside(t *testing.T) {
	t.Parallel()
	noise := make([]byte, 100_000)
	random := rand.New(rand.NewPCG(5, 1))
	for i := range noise {
		noise[i] = byte(random.Uint32())
	}
	for name, file := range map[string][]byte{"zeros": make([]byte, 100_000), "noise": noise, "a text": []byte("objects")} {
		if !wantWhole(t, name, file) {
			t.Errorf("%s: it was taken for a store", name)
		}
	}
	if _, aside := reopened(t, nil); aside != nil {
		t.Errorf("an empty file is not taken for a new one: %v", aside)
	}
}

// A machine that loses power has written some pages of the last transaction and not others.
// The first page, which leads to them, is written after they are synced.
func TestATornWriteIsTheStateBefore(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(6, 1))
	for range often(6, 40) {
		steps := 2 + random.IntN(steps)
		files := versions(t, steps)
		after, before := files[steps], files[steps-1]
		var earlier []int
		for step := range files {
			earlier = append(earlier, step)
		}
		torn := slices.Clone(after)
		before = append(before, make([]byte, max(0, len(after)-len(before)))...)
		copy(torn[:2*disk.PageSize], before)
		for page := 2 * disk.PageSize; page < len(after); page += disk.PageSize {
			if random.IntN(2) == 0 {
				copy(torn[page:page+disk.PageSize], before[page:])
			}
		}
		if wantWhole(t, "a torn write", torn, steps-1) {
			t.Errorf("a torn write of step %d: the file was set aside", steps)
		}
		// If the disk has written the first page too early, that is noticed, unless the result
		// is a complete earlier state.
		copy(torn[:2*disk.PageSize], after)
		wantWhole(t, "a torn write with its first page", torn, earlier...)
	}
}

func TestEveryWrittenFileIsWhole(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s := open(t, path, sample.ConfigMap("", ""), disk.Options{Durability: disk.SurviveProcess, Indexers: versionIndexer})
	h, random := newHistory(), rand.New(rand.NewPCG(7, 1))
	for range often(40, 150) {
		changes := h.next()
		if random.IntN(10) == 0 {
			changes = nil
			for _, obj := range h.objects { // so that pages become free and trees shallow
				changes = append(changes, deleting(obj))
			}
			clear(h.objects)
		}
		must(t, s.Apply(t.Context(), changes, h.bookmark()))
		if err := disk.Check(readFile(t, path)); err != nil {
			t.Fatalf("after step %d: %v", h.step, err)
		}
	}
}

func TestDamageIsToldWhileItIsInUse(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s := open(t, path, sample.ConfigMap("", ""), disk.Options{Indexers: versionIndexer})
	for _, name := range []string{"bad", "good"} {
		must(t, add(s, newSized(name, 1, 100)))
	}
	overwrite(t, path, "<bad in version 1>", "<bad in version 2>")
	if _, exists, err := s.Get(t.Context(), "default/good"); !exists || err != nil {
		t.Errorf("Get of another object: %v, %v", exists, err)
	}
	_, _, get := s.Get(t.Context(), "default/bad")
	_, scan := s.Scan(t.Context(), "", 10)
	_, byIndex := s.ByIndex(t.Context(), "version", "1")
	for op, err := range map[string]error{"Get": get, "Scan": scan, "ByIndex": byIndex} {
		if !errors.Is(err, disk.ErrDamaged) || !strings.Contains(err.Error(), "default/bad") {
			t.Errorf("%s: %v, want an error with the key", op, err)
		}
	}
	// The store can still be written.
	noError(t, s.Apply(t.Context(), nil, "1"))
	must(t, s.Close())
	wantAside(t, path, sample.ConfigMap("", ""), disk.Options{}, "default/bad")
}

func TestAFileTruncatedWhileInUseEndsTheStoreAndNotTheProcess(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	var reported []error
	s := open(t, path, sample.ConfigMap("", ""), disk.Options{ErrorHandler: func(err error) { reported = append(reported, err) }})
	h := newHistory()
	for range 20 {
		must(t, s.Apply(t.Context(), h.next(), h.bookmark()))
	}
	must(t, os.Truncate(path, 2*disk.PageSize))
	for range 3 {
		_, scan := s.Scan(t.Context(), "", 10)
		for op, err := range map[string]error{"Scan": scan, "Apply": s.Apply(t.Context(), h.next(), h.bookmark())} {
			if !errors.Is(err, disk.ErrDamaged) {
				t.Errorf("%s: %v, want %v", op, err, disk.ErrDamaged)
			}
		}
	}
	must(t, s.Close())
	if len(reported) != 1 || !strings.Contains(reported[0].Error(), "goroutine") {
		t.Errorf("reported: %v, want one panic with its stack", reported)
	}
	// After such an error the file is not used again, even if it looks right.
	file := whole(t, 3)
	writeFile(t, path, file)
	aside := wantAside(t, path, sample.ConfigMap("", ""), disk.Options{}, path)
	testkit.ErrorIs(t, &aside, disk.ErrDamaged)
	s = open(t, path, sample.ConfigMap("", ""), disk.Options{})
	must(t, errors.Join(add(s, newSized("a", 1, 1)), s.Close()))
	if s = open(t, path, sample.ConfigMap("", ""), disk.Options{}); len(stored(t, s)) != 1 {
		t.Error("what took the damaged file's place is set aside too")
	}
	writeFile(t, path+".damaged", []byte("of a file that is gone"))
	must(t, errors.Join(s.Close(), os.Remove(path)))
	must(t, open(t, path, sample.ConfigMap("", ""), disk.Options{}).Close())
	open(t, path, sample.ConfigMap("", ""), disk.Options{})
	entries, err := filepath.Glob(path + "*")
	if err != nil || len(entries) != 3 { // with the lock file and the file set aside
		t.Errorf("there is %v, %v", entries, err)
	}
}
