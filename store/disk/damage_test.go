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
	"github.com/customcacheinformer/informer/store/disk"
)

// whole returns the file of a store after steps, and the file of the step before.
func whole(t *testing.T, steps int) (file, before []byte) {
	t.Helper()
	path := newPath(t)
	s := open(t, path, sample.ConfigMap("", ""), disk.Options{Indexers: versionIndexer})
	h := newHistory()
	for range steps {
		before = readFile(t, path)
		if err := s.Apply(t.Context(), h.next(), h.bookmark()); err != nil {
			t.Fatal(err)
		}
	}
	return readFile(t, path), before
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func writeFile(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	all = contents(t, s)
	if aside == nil {
		goOn(t, s)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
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

func TestAWrongByteIsNoticed(t *testing.T) {
	t.Parallel()
	file, _ := whole(t, steps)
	random, noticed, n := rand.New(rand.NewPCG(1, 1)), 0, often(40, 200)
	used := usedPages(t, file)
	for range n {
		wrong, i := slices.Clone(file), used[random.IntN(len(used))]*disk.PageSize+random.IntN(disk.PageSize)
		wrong[i] ^= 1 << random.IntN(8)
		// If one of the first two pages is lost, the file is the state before.
		if wantWhole(t, "a wrong byte", wrong, steps, steps-1) {
			noticed++
		}
	}
	t.Logf("%d of %d wrong bytes were noticed; the others are where a page has nothing", noticed, n)
	if noticed < n/10 { // pages are at least half full, except the last of each tree
		t.Errorf("%d of %d wrong bytes were noticed, which cannot be all", noticed, n)
	}
}

// Most bytes belong to objects. This test changes all the others.
func TestAWrongByteInTheStructureIsNoticed(t *testing.T) {
	t.Parallel()
	file, _ := whole(t, steps)
	random, noticed, n := rand.New(rand.NewPCG(2, 1)), 0, 0
	for page := 0; page < len(file); page += disk.PageSize {
		for range often(3, 3) {
			wrong, i := slices.Clone(file), page+random.IntN(100)
			wrong[i] ^= 1 << random.IntN(8)
			n++
			if wantWhole(t, "a wrong byte in the structure", wrong, steps, steps-1) {
				noticed++
			}
		}
		if page += 5 * disk.PageSize; !*thorough {
			page += 16 * disk.PageSize
		}
		if testing.Short() {
			page += 40 * disk.PageSize
		}
	}
	t.Logf("%d of %d wrong bytes were noticed", noticed, n)
}

func TestAPageInThePlaceOfAnotherIsNoticed(t *testing.T) {
	t.Parallel()
	file, _ := whole(t, steps)
	random, pages := rand.New(rand.NewPCG(3, 1)), len(file)/disk.PageSize
	n, noticed := often(15, 100), 0
	for i := range n {
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
		if wantWhole(t, "a wrong page", wrong, steps, steps-1) {
			noticed++
		}
	}
	t.Logf("%d of %d wrong pages were noticed", noticed, n)
}

// A page that is both free and used would be overwritten later.
func TestAUsedPageThatIsAmongTheFreeOnesIsNoticed(t *testing.T) {
	t.Parallel()
	file, _ := whole(t, steps)
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
		if !wantWhole(t, "a used page among the free ones", wrong) {
			t.Errorf("page %d is among the free ones, and was not noticed", page)
		}
	}
}

// The key in a branch that leads to a page is in no record, so no checksum covers it.
func TestAWrongKeyThatLeadsToAPageIsNoticed(t *testing.T) {
	t.Parallel()
	file, _ := whole(t, steps)
	n, noticed := 0, 0
	for page := 2 * disk.PageSize; page < len(file); page += disk.PageSize {
		if binary.NativeEndian.Uint16(file[page+8:]) != 1 {
			continue
		}
		for i := 0; i < int(binary.NativeEndian.Uint16(file[page+10:])); i++ {
			element := page + 16 + 16*i
			for _, bit := range []byte{1, 0x80}[:often(2, 2)] {
				wrong := slices.Clone(file)
				wrong[element+int(binary.NativeEndian.Uint32(file[element:]))+len("default/o-")] ^= bit
				if n++; wantWhole(t, "a wrong key of a page", wrong, steps) {
					noticed++
				}
			}
			if i += 3; !*thorough {
				break
			}
		}
	}
	t.Logf("%d of %d wrong keys were noticed; the others are in pages that are not used", noticed, n)
	if noticed == 0 {
		t.Error("no wrong key was noticed")
	}
}

// A disk that loses a write leaves a page that was valid once. If the file can be opened at
// all, it must be an earlier state of the whole file.
func TestAPageThatIsOlderThanTheOthersIsNoticed(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s := open(t, path, sample.ConfigMap("", ""), disk.Options{Indexers: versionIndexer})
	h, files := newHistory(), [][]byte{readFile(t, path)}
	every := []int{0}
	for range steps {
		if err := s.Apply(t.Context(), h.next(), h.bookmark()); err != nil {
			t.Fatal(err)
		}
		files, every = append(files, readFile(t, path)), append(every, h.step)
	}
	random, n, noticed := rand.New(rand.NewPCG(8, 1)), 0, 0
	last := files[steps]
	for page := 0; page < len(last); page += disk.PageSize {
		older := files[steps-1-random.IntN(steps/2)]
		if page += 2 * disk.PageSize; !*thorough {
			page += 4 * disk.PageSize
		}
		if testing.Short() {
			page += 12 * disk.PageSize
		}
		if page+disk.PageSize > min(len(older), len(last)) || bytes.Equal(older[page:page+disk.PageSize], last[page:page+disk.PageSize]) {
			continue
		}
		wrong := slices.Clone(last)
		copy(wrong[page:page+disk.PageSize], older[page:])
		n++
		if wantWhole(t, "an older page", wrong, every...) {
			noticed++
		}
	}
	t.Logf("%d of %d older pages were noticed", noticed, n)
}

func TestATruncatedFileIsNoticed(t *testing.T) {
	t.Parallel()
	file, _ := whole(t, steps)
	random := rand.New(rand.NewPCG(4, 1))
	sizes := []int{1, 100, disk.PageSize - 1, disk.PageSize, 2 * disk.PageSize, 4 * disk.PageSize, len(file) - 1}
	n := often(15, 60)
	for range n {
		sizes = append(sizes, 1+random.IntN(len(file)-1))
	}
	for _, size := range sizes {
		// The end of a file is free room.
		if !wantWhole(t, "a truncated file", file[:size], steps) && size < len(file)/2 {
			t.Errorf("%d of %d bytes were taken for a file", size, len(file))
		}
	}
}

func TestWhatIsNoStoreIsSetAside(t *testing.T) {
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
	var earlier []int
	for step := range steps + 2 {
		earlier = append(earlier, step)
	}
	n := often(6, 40)
	for range n {
		steps := 2 + random.IntN(steps)
		after, before := whole(t, steps)
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
		wantWhole(t, "a torn write with its first page", torn, earlier[:steps+1]...)
	}
}

func TestEveryFileThatIsWrittenIsWhole(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s := open(t, path, sample.ConfigMap("", ""), disk.Options{Durability: disk.SurviveProcess, Indexers: versionIndexer})
	h, random := newHistory(), rand.New(rand.NewPCG(7, 1))
	n := often(40, 150)
	for range n {
		changes := h.next()
		if random.IntN(10) == 0 {
			changes = nil
			for _, obj := range h.objects { // so that pages become free and trees shallow
				changes = append(changes, deleting(obj))
			}
			clear(h.objects)
		}
		if err := s.Apply(t.Context(), changes, h.bookmark()); err != nil {
			t.Fatal(err)
		}
		if err := disk.Check(readFile(t, path)); err != nil {
			t.Fatalf("after step %d: %v", h.step, err)
		}
	}
}

func TestDamageIsToldWhileItIsInUse(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	var reported []error
	s := open(t, path, sample.ConfigMap("", ""), disk.Options{Indexers: versionIndexer, ErrorHandler: func(err error) { reported = append(reported, err) }})
	for _, name := range []string{"bad", "good"} {
		if err := add(s, newSized(name, 1, 100)); err != nil {
			t.Fatal(err)
		}
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
	if err := s.Apply(t.Context(), nil, "1"); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, path, sample.ConfigMap("", ""), disk.Options{ErrorHandler: func(err error) { reported = append(reported, err) }})
	var set *disk.SetAsideError
	if len(reported) != 1 || !errors.As(reported[0], &set) || len(stored(t, s)) != 0 {
		t.Errorf("opened again, it is not empty, or there is no report: %v", reported)
	}
}

func TestAFileThatIsTruncatedWhileInUseEndsTheStoreAndNotTheProcess(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	var reported []error
	report := func(err error) { reported = append(reported, err) }
	s := open(t, path, sample.ConfigMap("", ""), disk.Options{ErrorHandler: report})
	h := newHistory()
	for range 20 {
		if err := s.Apply(t.Context(), h.next(), h.bookmark()); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Truncate(path, 2*disk.PageSize); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		_, scan := s.Scan(t.Context(), "", 10)
		for op, err := range map[string]error{"Scan": scan, "Apply": s.Apply(t.Context(), h.next(), h.bookmark())} {
			if !errors.Is(err, disk.ErrDamaged) {
				t.Errorf("%s: %v, want %v", op, err, disk.ErrDamaged)
			}
		}
	}
	if len(reported) != 1 || !strings.Contains(reported[0].Error(), "goroutine") {
		t.Errorf("reported: %v, want one panic with its stack", reported)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	// After such an error the file is not used again, even if it looks right.
	file, _ := whole(t, 3)
	writeFile(t, path, file)
	s = open(t, path, sample.ConfigMap("", ""), disk.Options{ErrorHandler: report})
	if len(reported) != 2 || !errors.Is(reported[1], disk.ErrDamaged) || len(stored(t, s)) != 0 {
		t.Errorf("opened again, it is not empty, or there is no report: %v", reported)
	}
	if err := add(s, newSized("a", 1, 1)); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s = open(t, path, sample.ConfigMap("", ""), disk.Options{}); len(stored(t, s)) != 1 {
		t.Error("what took the damaged file's place is set aside too")
	}
	writeFile(t, path+".damaged", []byte("of a file that is gone"))
	if err := errors.Join(s.Close(), os.Remove(path)); err != nil {
		t.Fatal(err)
	}
	if err := open(t, path, sample.ConfigMap("", ""), disk.Options{}).Close(); err != nil {
		t.Fatal(err)
	}
	open(t, path, sample.ConfigMap("", ""), disk.Options{})
	entries, err := filepath.Glob(path + "*")
	if err != nil || len(entries) != 3 { // with the lock file and the file set aside
		t.Errorf("there is %v, %v", entries, err)
	}
}
