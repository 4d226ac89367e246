package disk

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// inspect returns why the file at path cannot be used, or nil if it can be used or does not
// exist. It returns an error if that cannot be determined.
func inspect(path string, look *inspection) (reason, err error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, unmark(path) // the mark of an earlier file is obsolete
	case err != nil:
		return nil, err
	case info.Mode().Type() == fs.ModeSymlink:
		// To set the file aside would rename the link, and make the new file in its place, perhaps
		// on another volume.
		return nil, errors.New("it is a symbolic link: open the file that it leads to by its own name")
	case !info.Mode().IsRegular():
		return nil, errors.New("it is not a regular file")
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, unlock(file)) }()
	if err := lockToRead(file); err != nil {
		return nil, err
	}
	return look.file(file, info)
}

// file is the part of inspect for a regular file that no other store has open.
func (i *inspection) file(file *os.File, info fs.FileInfo) (reason, err error) {
	if info.Mode().Perm()&^fileMode != 0 {
		if err := os.Chmod(file.Name(), fileMode); err != nil {
			return fmt.Errorf("its mode is %v, which cannot be changed to %v: %w", info.Mode(), fs.FileMode(fileMode), err), nil
		}
	}
	if maxFile > 0 && info.Size() > int64(maxFile) {
		return fmt.Errorf("it has %d bytes, more than the %d that a file can have on this machine", info.Size(), maxFile), nil
	}
	if reason, err := os.ReadFile(mark(file.Name())); err == nil {
		return fmt.Errorf("%w, which was noticed while it was in use: %s", ErrDamaged, reason), nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if info.Size() == 0 {
		return nil, nil
	}
	if reason = check(file, info.Size(), i); reason == nil {
		reason = i.missing()
	}
	if unread := (*readError)(nil); errors.As(reason, &unread) {
		return nil, unread
	}
	return reason, nil
}

// Open decodes the tombstones and the first objects, which an informer reads at its start, and
// a sample of the other objects. This adds a sixth to the time of Open. To decode all Pods of
// 2 KiB would take ten times as long as to read the file.
const (
	firstDecoded = pageRecords
	everyDecoded = 100
)

// inspection is a visitor that finds out whether an undamaged file can be used.
type inspection struct {
	want    label
	codec   objectCodec
	found   map[string]bool // names of buckets, and keys of the about bucket
	objects int             // number of objects so far
}

// bucket returns an error for an unknown name, because names have no checksum.
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
// the other records.
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
			_, err = i.codec.decode(key, payload)
		}
	case tombstonesBucket:
		_, err = i.codec.decode(buried(key), payload)
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

// missing returns an error if the file has some, but not all, of the label and the buckets.
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

func unmark(path string) error {
	if err := os.Remove(mark(path)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// setAside renames the file at path, and removes files that were set aside before, unless this one was always empty.
func setAside(path string, reason error, report func(error)) error {
	const suffix, asideTime = ".aside-", "20060102T150405.000000Z"
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	aside := path + suffix + time.Now().UTC().Format(asideTime)
	if err := os.Rename(path, aside); err != nil {
		return fmt.Errorf("it cannot be set aside (%w): %w", reason, err)
	}
	if err := unmark(path); err != nil {
		return err
	}
	report(&SetAsideError{Path: path, Aside: aside, Err: reason})
	if info.Size() < emptySize {
		return nil // The file was always empty, but the one set aside before may have contents.
	}
	dir, prefix := filepath.Dir(path), filepath.Base(path)+suffix
	entries, err := os.ReadDir(dir)
	for _, entry := range entries {
		name := entry.Name()
		at, ours := strings.CutPrefix(name, prefix)
		if _, wrong := time.Parse(asideTime, at); ours && wrong == nil && name != filepath.Base(aside) {
			err = errors.Join(err, os.Remove(filepath.Join(dir, name)))
		}
	}
	if err != nil { // not fatal: the new file can be made
		report(fmt.Errorf("disk: %s: removing files that were set aside before: %w", path, err))
	}
	return nil
}
