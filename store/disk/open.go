package disk

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/customcacheinformer/informer/store"
	"github.com/customcacheinformer/informer/store/codec"
)

// format is the version of the buckets and records. It increases when they change.
const format = 1

// fileMode is the mode of the file, and of the files next to it.
const fileMode = 0o600

// maxFile is the largest size of a file, 0 for no limit. On 32 bit, bbolt does not notice when a
// size of 2 GiB or more overflows, and above 1 GiB it maps 2 GiB, for which a process seldom has
// room. It is a variable for the tests.
var maxFile = func() int {
	if strconv.IntSize == 32 {
		return 1 << 30
	}
	return 0
}()

// label is the identity that is stored in the file.
type label struct {
	Format   int
	Type     string // type of the objects
	Fields   string // fingerprint of the type
	Encoding string
	Identity store.Identity
}

// field is a field of a label.
type field struct{ name, value string }

func (s *Store) label() label {
	return label{
		Format: format, Type: s.codec.TypeName(), Fields: s.codec.Fingerprint(),
		Encoding: s.codec.Encoding(), Identity: s.opts.Identity,
	}
}

// difference returns an error that names the first field in which other differs from l.
func (l label) difference(other label) error {
	found := other.fields()
	for i, want := range l.fields() {
		if found[i] != want {
			return fmt.Errorf("its %s is %q, want %q", want.name, found[i].value, want.value)
		}
	}
	return nil
}

func (l label) fields() []field {
	return []field{
		{"format", fmt.Sprint(l.Format)},
		{"type of the objects", l.Type},
		{"fields of the objects", l.Fields},
		{"encoding", l.Encoding},
		{"Identity.Cluster", l.Identity.Cluster},
		{"Identity.Resource", l.Identity.Resource},
		{"Identity.Namespace", l.Identity.Namespace},
		{"Identity.Selector", l.Identity.Selector},
		{"Identity.Version", l.Identity.Version},
	}
}

// openFile opens the file. If the file cannot be used, it sets the file aside and opens a new
// one.
func (s *Store) openFile() error {
	reason, err := s.inspect()
	if err == nil && reason == nil {
		if err = s.openDB(); errors.Is(err, ErrDamaged) {
			reason, err = err, nil
		}
	}
	if err != nil || reason == nil {
		return err
	}
	if err := s.setAside(reason); err != nil {
		return err
	}
	s.broken.Store(nil)
	return s.openDB()
}

// inspect returns a reason if the file cannot be used, nil if it can, and an error if that
// cannot be determined.
func (s *Store) inspect() (reason, err error) {
	info, err := os.Lstat(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, s.unmark() // the mark of an earlier file is obsolete
	}
	if err != nil {
		return nil, err
	}
	if info.Mode().Type() == fs.ModeSymlink {
		// To set the file aside would rename the link, and make the new file in its place, perhaps
		// on another volume.
		return nil, errors.New("it is a symbolic link: open the file that it leads to by its own name")
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is no regular file")
	}
	file, err := os.Open(s.path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, unlock(file)) }()
	if err := lockToRead(file); err != nil {
		return nil, err
	}
	return s.inspectFile(file, info)
}

// inspectFile does the work of inspect for a regular file that no other store has open.
func (s *Store) inspectFile(file *os.File, info fs.FileInfo) (reason, err error) {
	if info.Mode().Perm()&^fileMode != 0 {
		if err := os.Chmod(s.path, fileMode); err != nil {
			return fmt.Errorf("its mode is %v, which cannot be changed to %v: %w", info.Mode(), fs.FileMode(fileMode), err), nil
		}
	}
	if maxFile > 0 && info.Size() > int64(maxFile) {
		return fmt.Errorf("it has %d bytes, more than the %d that a file can have on this machine", info.Size(), maxFile), nil
	}
	if said, err := os.ReadFile(s.mark()); err == nil {
		return fmt.Errorf("%w, which was noticed while it was in use: %s", ErrDamaged, said), nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if info.Size() == 0 {
		return nil, nil
	}
	look := &inspection{want: s.label(), codec: s.codec, found: map[string]bool{}}
	err = check(file, info.Size(), look)
	if unread := (*readError)(nil); errors.As(err, &unread) {
		return nil, unread
	}
	if err != nil {
		return err, nil
	}
	return look.missing(), nil
}

// Open decodes the tombstones and the first objects, which an informer reads at its start, and
// a sample of the other objects. This adds a sixth to the time of Open; to decode all
// Pods of 2 KiB would take ten times as long as to read the file.
const (
	firstDecoded = pageRecords
	everyDecoded = 100
)

// inspection is a visitor that finds out whether an undamaged file can be used.
type inspection struct {
	want    label
	codec   codec.Codec
	found   map[string]bool // names of buckets, and keys of the about bucket
	objects int             // number of objects so far
}

// bucket refuses an unknown name, because names have no checksum.
func (i *inspection) bucket(path []string) error {
	name := path[len(path)-1]
	known := false
	switch len(path) {
	case 1:
		known = slices.Contains(buckets, name)
		i.found[name] = true
	case 2:
		known = path[0] == indexesBucket
	case 3:
		known = name == entriesBucket || name == valuesBucket
	}
	if !known {
		return damage("there is a bucket %q", path)
	}
	return nil
}

// record checks the records about the file, which come before all others, and decodes some of
// the others.
func (i *inspection) record(path []string, key, payload []byte) error {
	if len(path) != 1 {
		return nil
	}
	var err error
	switch path[0] {
	case aboutBucket:
		err = i.about(key, payload)
	case objectsBucket:
		if i.objects++; i.objects <= firstDecoded || i.objects%everyDecoded == 0 {
			_, err = decodeRecord(i.codec, key, payload)
		}
	case tombstonesBucket:
		_, err = decodeRecord(i.codec, buried(key), payload)
	}
	return err
}

// about checks a record about the file.
func (i *inspection) about(key, payload []byte) error {
	i.found[string(key)] = true
	switch string(key) {
	case labelKey:
		var found label
		if err := json.Unmarshal(payload, &found); err != nil {
			return damage("its label: %w", err)
		}
		return i.want.difference(found)
	case sessionKey:
		if boot := bootID(); boot == "" || boot != string(payload) {
			return errors.New("the machine stopped before the whole file was on the disk (Durability was SurviveProcess)")
		}
	}
	return nil
}

// missing returns an error if the file has some of the label and buckets, but not all.
func (i *inspection) missing() error {
	if len(i.found) == 0 {
		return nil
	}
	for _, name := range append([]string{labelKey}, buckets...) {
		if !i.found[name] {
			return damage("there is no %s", name)
		}
	}
	return nil
}

// setAside renames the file, and removes files that were set aside before.
func (s *Store) setAside(reason error) error {
	const suffix, asideTime = ".aside-", "20060102T150405.000000Z"
	info, err := os.Stat(s.path)
	if err != nil {
		return err
	}
	aside := s.path + suffix + time.Now().UTC().Format(asideTime)
	if err := os.Rename(s.path, aside); err != nil {
		return fmt.Errorf("it cannot be set aside (%w): %w", reason, err)
	}
	if err := s.unmark(); err != nil {
		return err
	}
	s.opts.ErrorHandler(&SetAsideError{Path: s.path, Aside: aside, Err: reason})
	if info.Size() < emptySize {
		return nil // The file was always empty, but the one set aside before may have contents.
	}
	dir, prefix := filepath.Dir(s.path), filepath.Base(s.path)+suffix
	entries, err := os.ReadDir(dir)
	for _, entry := range entries {
		name := entry.Name()
		at, ours := strings.CutPrefix(name, prefix)
		if _, wrong := time.Parse(asideTime, at); ours && wrong == nil && name != filepath.Base(aside) {
			err = errors.Join(err, os.Remove(filepath.Join(dir, name)))
		}
	}
	if err != nil { // not fatal: the new file can be made
		s.opts.ErrorHandler(fmt.Errorf("disk: %s: removing files that were set aside before: %w", s.path, err))
	}
	return nil
}

// openDB opens the file with bbolt, and begins a session.
func (s *Store) openDB() error {
	clear(s.dormant)
	err := s.guard(func() (err error) {
		s.db, err = bbolt.Open(s.path, fileMode, &bbolt.Options{
			Timeout: 1, // a nanosecond: do not wait for the lock
			// With an array, time grows with the number of free pages.
			FreelistType: bbolt.FreelistMapType,
			PageSize:     pageSize,
			MaxSize:      maxFile,
			NoStatistics: true,
			OpenFile: func(name string, flag int, perm os.FileMode) (*os.File, error) {
				s.file, err = os.OpenFile(name, flag, perm)
				return s.file, err
			},
		})
		switch {
		case errors.Is(err, berrors.ErrTimeout):
			return ErrInUse
		case errors.Is(err, berrors.ErrInvalid), errors.Is(err, berrors.ErrChecksum), errors.Is(err, berrors.ErrVersionMismatch):
			return fmt.Errorf("%w: %w", ErrDamaged, err)
		}
		return err
	})
	if err == nil {
		err = s.beginSession()
	}
	if err == nil {
		return nil
	}
	if s.broken.Load() == nil && s.db != nil {
		return errors.Join(err, s.db.Close())
	}
	if s.broken.Load() != nil && s.file != nil {
		return errors.Join(err, unlock(s.file))
	}
	return err
}
