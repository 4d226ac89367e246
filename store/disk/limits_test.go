package disk_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/sample"
	"github.com/customcacheinformer/informer/store/disk"
)

// hollow is a file of any size that holds zeros, except for the pages in it.
type hollow struct {
	size  int64
	pages map[int64][]byte
}

func (h hollow) ReadAt(p []byte, at int64) (int, error) {
	if at < 0 || at >= h.size {
		return 0, io.EOF
	}
	clear(p)
	if at%disk.PageSize+int64(len(p)) <= disk.PageSize {
		if page := h.pages[at/disk.PageSize]; page != nil {
			copy(p, page[at%disk.PageSize:])
		}
	}
	return len(p), nil
}

// set writes a page with its header, and returns the contents of the page.
func (h hollow) set(id int64, flags, count uint16, overflow uint32) []byte {
	page := make([]byte, disk.PageSize)
	binary.NativeEndian.PutUint64(page, uint64(id))
	binary.NativeEndian.PutUint16(page[8:], flags)
	binary.NativeEndian.PutUint16(page[10:], count)
	binary.NativeEndian.PutUint32(page[12:], overflow)
	h.pages[id] = page
	return page[16:]
}

// newHollow returns a file without objects. Its list of free pages is page 2, and its root is
// another page.
func newHollow(size, root int64) hollow {
	h := hollow{size, map[int64][]byte{}}
	for id := range int64(2) {
		meta, sum := h.set(id, 4, 0, 0), fnv.New64a()
		binary.NativeEndian.PutUint32(meta, 0xED0CDAED)
		binary.NativeEndian.PutUint32(meta[4:], 2)
		binary.NativeEndian.PutUint32(meta[8:], disk.PageSize)
		binary.NativeEndian.PutUint64(meta[16:], uint64(root))
		binary.NativeEndian.PutUint64(meta[32:], 2)
		binary.NativeEndian.PutUint64(meta[40:], uint64(size/disk.PageSize))
		_, _ = sum.Write(meta[:56])
		binary.NativeEndian.PutUint64(meta[56:], sum.Sum64())
	}
	const leaf, freelist = 0x02, 0x10
	h.set(root, leaf, 0, 0)
	h.set(2, freelist, 0, 0)
	return h
}

// The number of pages that belong to a page is a field of 32 bit in the file. In bytes that is
// more than an int of 32 bit holds: 2 GiB become negative, and 4 GiB and a page become a page.
func TestAForgedNumberOfPagesIsNoticed(t *testing.T) {
	const size, root = 6 << 30, 3
	if _, err := disk.CheckRead(newHollow(size, root), size); err != nil {
		t.Fatalf("without a forged number: %v", err)
	}
	for _, pages := range []int64{2 << 30 / disk.PageSize, 3 << 30 / disk.PageSize, 4 << 30 / disk.PageSize, 4<<30/disk.PageSize + 1, 1 << 32} {
		h := newHollow(size, root)
		h.set(root, 0x02, 0, uint32(pages-1))
		want := fmt.Sprintf("page %d has %d bytes", root, pages*disk.PageSize)
		if pages*disk.PageSize > size {
			want = fmt.Sprintf("there is no page %d with %d pages", root, pages)
		}
		if _, err := disk.CheckRead(h, size); !errors.Is(err, disk.ErrDamaged) || !strings.Contains(err.Error(), want) {
			t.Errorf("a page of %d bytes: %v, want that %s", pages*disk.PageSize, err, want)
		}

		// The list of free pages may be large, because a large file may have many.
		h, want = newHollow(size, size/disk.PageSize-1), ""
		free := h.set(2, 0x10, 1, uint32(pages-1))
		binary.NativeEndian.PutUint64(free, uint64(size/disk.PageSize-2))
		if pages*disk.PageSize > size {
			want = fmt.Sprintf("there is no page 2 with %d pages", pages)
		}
		if _, err := disk.CheckRead(h, size); (want != "" || err != nil) && (!errors.Is(err, disk.ErrDamaged) || !strings.Contains(err.Error(), want)) {
			t.Errorf("a list of free pages of %d bytes: %v, want %q", pages*disk.PageSize, err, want)
		}
	}
}

// On 32 bit, bbolt would take the size of the first file for a negative number, and that of the
// second for 64 KiB.
func TestAFileOfSeveralGigabytesIsSetAsideOn32BitAndUsedOn64(t *testing.T) {
	for _, size := range []int64{3 << 30, 4<<30 + 64<<10} {
		path := filledFile(t, disk.Options{})
		if err := os.Truncate(path, size); err != nil {
			t.Skipf("this file system has no file of %d bytes with a hole: %v", size, err)
		}
		if strconv.IntSize == 32 {
			wantAside(t, path, &corev1.ConfigMap{}, disk.Options{}, fmt.Sprintf("it has %d bytes", size))
		} else if s := open(t, path, &corev1.ConfigMap{}, disk.Options{}); len(stored(t, s)) != 1 {
			t.Errorf("a file of %d bytes is not used", size)
		}
	}
}

func TestAFileLargerThanTheLimitIsSetAside(t *testing.T) {
	path := newPath(t)
	s := open(t, path, sample.ConfigMap("", ""), disk.Options{})
	must(t, errors.Join(add(s, newSized("a", 1, 1<<20)), s.Close()))
	info, err := os.Stat(path)
	must(t, err)
	defer disk.SetMaxFile(int(info.Size()))()
	if err := open(t, path, &corev1.ConfigMap{}, disk.Options{}).Close(); err != nil {
		t.Errorf("a file as large as the limit: %v", err)
	}
	disk.SetMaxFile(int(info.Size()) - 1)
	wantAside(t, path, &corev1.ConfigMap{}, disk.Options{}, fmt.Sprintf("it has %d bytes, more than the %d", info.Size(), info.Size()-1))
}

func TestAFileDoesNotGrowBeyondTheLimit(t *testing.T) {
	const limit = 1 << 20
	defer disk.SetMaxFile(limit)()
	path := newPath(t)
	s := open(t, path, sample.ConfigMap("", ""), disk.Options{Durability: disk.SurviveProcess})
	n, err := 0, error(nil)
	for ; err == nil && n < 100; n++ {
		err = add(s, newSized(strconv.Itoa(n), 1, limit/32))
	}
	if err == nil || !strings.Contains(err.Error(), "more than 1048576 bytes") || errors.Is(err, informer.ErrPermanent) || errors.Is(err, disk.ErrDamaged) {
		t.Fatalf("after %d objects: %v, want that the file cannot grow", n, err)
	}
	if info, err := os.Stat(path); err != nil || info.Size() > limit {
		t.Errorf("the file has grown: %v, %v", info, err)
	}
	if stored := len(stored(t, s)); stored != n-1 {
		t.Errorf("%d objects are stored, want those before the error, %d", stored, n-1)
	}
	if err := add(s, newSized("0", 2, 1)); err != nil {
		t.Errorf("Add of a small object: %v", err)
	}
}
