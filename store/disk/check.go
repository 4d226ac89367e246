package disk

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
)

// Before bbolt opens a file, this package reads the whole file. bbolt reads through a memory
// map and trusts the data: on some damage it panics or recurses forever, a truncated file
// causes a SIGBUS, and if a wrong bit puts one page in the place of another, bbolt accepts it.
// This code reads the same format (version 2 of bbolt's) with pread, makes no allocation whose
// size the file decides, and finds any change of a byte that matters. It checks that the
// contents of a page have no gaps, that keys are in order, that a page is used once and is not
// free, that every value is a record with a valid checksum, and that the records of a bucket
// are those of its last write. A lost page, neither used nor free, does no harm. Only one
// change goes unnoticed: a file that is, as a whole, an earlier state.

// pageSize is the page size of all files, whatever the page size of the machine is. Objects of
// 2 KiB leave a fifth of a page of 8 KiB unused, and half of a page of 4 KiB.
const pageSize = 8 << 10

// A page has a header, then elements of one size, then keys and values.
const (
	headerSize    = 16
	elementSize   = 16
	bucketSize    = 16
	bucketElement = 1

	branchPage   = 0x01
	leafPage     = 0x02
	freelistPage = 0x10

	boltMagic   = 0xED0CDAED
	boltVersion = 2

	// maxDepth is deeper than a tree can be: each level has at least two children.
	maxDepth = 64
	// maxPage is larger than any page, overflow included: a page has up to four records.
	maxPage = 5 * maxRecord // fits in an int of 32 bit
)

var native = binary.NativeEndian

// emptySize is the size of a new bbolt file. A file never becomes smaller.
const emptySize = 4 * pageSize

// readError is an error of the operating system. It does not mean that the file is damaged.
type readError struct{ error }

func (e *readError) Unwrap() error { return e.error }

// notRead converts the error of a failed read. If the file is too short, the result wraps
// ErrDamaged. Otherwise it is a readError.
func notRead(page uint64, err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return damage("page %d: %w", page, err)
	}
	return &readError{fmt.Errorf("page %d: %w", page, err)}
}

// visitor is called for the buckets and records of a file, in the order of names and keys. A
// path consists of the names of the outer buckets and of the bucket itself. A visitor must not
// keep its arguments.
type visitor interface {
	bucket(path []string) error
	record(path []string, key, payload []byte) error
}

// check calls visit for all that a file holds. It returns an error that wraps ErrDamaged if a page, a key or a sum is
// wrong, a readError, or an error of visit.
func check(file io.ReaderAt, size int64, visit visitor) error {
	meta, err := readMeta(file)
	if err != nil {
		return err
	}
	if limit := uint64(size) / pageSize; meta.pages > limit {
		return damage("it has only %d of its %d pages", limit, meta.pages)
	}
	w := &walker{file: file, pages: meta.pages, used: make([]uint64, meta.pages/64+1), visit: visit}
	if err := w.page(nil, meta.root, 0, &bounds{}); err != nil {
		return err
	}
	return w.freelist(meta.freelist)
}

// metaPage holds the fields of one of bbolt's two meta pages.
type metaPage struct{ root, freelist, pages, transaction uint64 }

func readMeta(file io.ReaderAt) (latest metaPage, err error) {
	page := make([]byte, headerSize+64)
	found := false
	for i := range int64(2) {
		if _, err := file.ReadAt(page, i*pageSize); err != nil {
			return metaPage{}, notRead(uint64(i), err) // even an empty file has both pages
		}
		b := page[headerSize:]
		h := fnv.New64a()
		_, _ = h.Write(b[:56])
		if native.Uint32(b) != boltMagic || native.Uint32(b[4:]) != boltVersion || native.Uint64(b[56:]) != h.Sum64() {
			continue
		}
		if native.Uint32(b[8:]) != pageSize {
			return metaPage{}, damage("its pages have %d bytes, want %d", native.Uint32(b[8:]), pageSize)
		}
		m := metaPage{root: native.Uint64(b[16:]), freelist: native.Uint64(b[32:]), pages: native.Uint64(b[40:]), transaction: native.Uint64(b[48:])}
		if !found || m.transaction > latest.transaction {
			latest, found = m, true
		}
	}
	if !found {
		return metaPage{}, damage("neither of its first two pages is valid")
	}
	return latest, nil
}

type walker struct {
	file    io.ReaderAt
	pages   uint64
	used    []uint64 // a bit for each page
	buffers [maxDepth][]byte
	visit   visitor
}

// take marks the n pages that begin with id as used.
func (w *walker) take(id, n uint64) error {
	if id < 2 || id >= w.pages || n > w.pages-id {
		return damage("there is no page %d with %d pages", id, n)
	}
	for i := id; i < id+n; i++ {
		if w.used[i/64]&(1<<(i%64)) != 0 {
			return damage("page %d is used twice", i)
		}
		w.used[i/64] |= 1 << (i % 64)
	}
	return nil
}

// header returns the header of a page, and marks all pages that belong to it as used. size is
// at most 32 TiB, whatever the file claims. On a 32-bit machine it may not fit in an int.
func (w *walker) header(id uint64) (flags uint16, count int, size int64, err error) {
	var h [headerSize]byte
	if id >= w.pages {
		return 0, 0, 0, damage("there is no page %d", id)
	}
	if _, err := w.file.ReadAt(h[:], int64(id)*pageSize); err != nil {
		return 0, 0, 0, notRead(id, err)
	}
	if native.Uint64(h[:]) != id {
		return 0, 0, 0, damage("page %d has the number %d", id, native.Uint64(h[:]))
	}
	n := 1 + uint64(native.Uint32(h[12:]))
	return native.Uint16(h[8:]), int(native.Uint16(h[10:])), int64(n * pageSize), w.take(id, n)
}

// bounds is the position of a walker in a bucket.
type bounds struct {
	last  []byte // the previous key; nil if there is none
	first []byte // the first key that this page must have, from the branch above it; nil once checked
	sum   uint64 // sum of the records so far
}

// see returns an error if key, the next key of a page, is not in order or not the expected
// first key.
func (b *bounds) see(key []byte) error {
	if b.first != nil && !bytes.Equal(key, b.first) {
		return damage("its first key is %q, want %q", key, b.first)
	}
	if b.first = nil; len(key) == 0 || b.last != nil && bytes.Compare(key, b.last) <= 0 {
		return damage("key %q is not in order", key)
	}
	return nil
}

func (w *walker) page(path []string, id uint64, depth int, b *bounds) error {
	if depth >= maxDepth {
		return damage("page %d is too deep", id)
	}
	flags, count, size, err := w.header(id)
	if err != nil {
		return err
	}
	if size > maxPage {
		return damage("page %d has %d bytes", id, size)
	}
	if int64(cap(w.buffers[depth])) < size {
		w.buffers[depth] = make([]byte, size)
	}
	data := w.buffers[depth][:size]
	if _, err := w.file.ReadAt(data, int64(id)*pageSize); err != nil {
		return notRead(id, err)
	}
	switch flags {
	case leafPage:
		err = w.leaf(path, data, count, depth, b)
	case branchPage:
		err = w.branch(path, data, count, depth, b)
	default:
		err = damage("its type is %#x", flags)
	}
	if err != nil && errors.Is(err, ErrDamaged) {
		return fmt.Errorf("page %d: %w", id, err)
	}
	return err
}

// contents reads the keys and values of a page one after the other.
type contents struct {
	data []byte
	next int
}

func newContents(data []byte, count int) (contents, error) {
	c := contents{data, headerSize + count*elementSize}
	if c.next > len(data) {
		return c, damage("it has no room for %d elements", count)
	}
	return c, nil
}

// take returns the next n bytes. pos is where they begin according to element i, counted from the
// element.
func (c *contents) take(i int, pos, n uint32) ([]byte, error) {
	if start := int64(headerSize+i*elementSize) + int64(pos); start != int64(c.next) {
		return nil, damage("element %d is at %d, want %d", i, start, c.next)
	}
	if int64(n) > int64(len(c.data)-c.next) {
		return nil, damage("element %d has %d bytes", i, n)
	}
	b := c.data[c.next : c.next+int(n)]
	c.next += int(n)
	return b, nil
}

func (w *walker) branch(path []string, data []byte, count, depth int, b *bounds) error {
	c, err := newContents(data, count)
	if err != nil {
		return err
	}
	if count == 0 {
		return damage("it is a branch without a child")
	}
	for i := range count {
		e := data[headerSize+i*elementSize:]
		key, err := c.take(i, native.Uint32(e), native.Uint32(e[4:]))
		if err != nil {
			return err
		}
		if err := b.see(key); err != nil {
			return err
		}
		b.first = key
		if err := w.page(path, native.Uint64(e[8:]), depth+1, b); err != nil {
			return err
		}
	}
	return nil
}

func (w *walker) leaf(path []string, data []byte, count, depth int, b *bounds) error {
	c, err := newContents(data, count)
	if err != nil {
		return err
	}
	for i := range count {
		e := data[headerSize+i*elementSize:]
		ksize, vsize := native.Uint32(e[8:]), native.Uint32(e[12:])
		if uint64(ksize)+uint64(vsize) > maxPage {
			return damage("element %d has %d and %d bytes", i, ksize, vsize)
		}
		both, err := c.take(i, native.Uint32(e[4:]), ksize+vsize)
		if err != nil {
			return err
		}
		key, value := both[:ksize], both[ksize:]
		if err := b.see(key); err != nil {
			return err
		}
		b.last = append(b.last[:0], key...)
		switch flags := native.Uint32(e); flags {
		case 0:
			b.sum += weight(value)
			payload, err := unseal(key, value)
			if err == nil {
				err = w.visit.record(path, key, payload)
			}
			if err != nil {
				return err
			}
		case bucketElement:
			if err := w.nested(append(path[:len(path):len(path)], string(key)), value, depth); err != nil {
				return err
			}
		default:
			return damage("element %d has the flags %#x", i, flags)
		}
	}
	return nil
}

// nested walks through a bucket inside another one. Its records are in their own pages, or in
// one page inside value.
func (w *walker) nested(path []string, value []byte, depth int) error {
	if err := w.visit.bucket(path); err != nil {
		return err
	}
	if len(value) < bucketSize {
		return damage("bucket %q has %d bytes", path, len(value))
	}
	if depth+1 >= maxDepth {
		return damage("bucket %q is too deep", path)
	}
	b, inline := &bounds{}, value[bucketSize:]
	var err error
	switch root := native.Uint64(value); {
	case root != 0:
		err = w.page(path, root, depth+1, b)
	case len(inline) < headerSize || native.Uint16(inline[8:]) != leafPage:
		err = damage("bucket %q has no page", path)
	default:
		err = w.leaf(path, inline, int(native.Uint16(inline[10:])), depth+1, b)
	}
	if sum := native.Uint64(value[8:]); err == nil && b.sum != sum {
		return damage("the records of bucket %q sum up to %#x, want %#x", path, b.sum, sum)
	}
	return err
}

// freelist checks that no free page is in use, and that no page is listed twice.
func (w *walker) freelist(id uint64) error {
	flags, count, size, err := w.header(id)
	if err != nil {
		return err
	}
	if flags != freelistPage {
		return damage("page %d is not a list of free pages", id)
	}
	r := io.NewSectionReader(w.file, int64(id)*pageSize+headerSize, size-headerSize)
	ids, n := make([]byte, 64<<10), uint64(count)
	if count == 0xFFFF { // then the first number is the count
		if _, err := io.ReadFull(r, ids[:8]); err != nil {
			return notRead(id, err)
		}
		n, size = native.Uint64(ids), size-8
	}
	if n > uint64(size-headerSize)/8 {
		return damage("page %d has no room for %d pages", id, n)
	}
	for n > 0 {
		chunk := ids[:8*min(n, uint64(len(ids)/8))]
		if _, err := io.ReadFull(r, chunk); err != nil {
			return notRead(id, err)
		}
		for ; len(chunk) > 0; chunk = chunk[8:] {
			n--
			if err := w.take(native.Uint64(chunk), 1); err != nil {
				return fmt.Errorf("among the free pages: %w", err)
			}
		}
	}
	return nil
}
