//go:build unix

package disk_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/customcacheinformer/informer/store/disk"
)

// wantPrivate fails the test unless a file has mode 0600.
func wantPrivate(t *testing.T, path string) {
	t.Helper()
	const want = fs.FileMode(0o600)
	if info, err := os.Lstat(path); err != nil || info.Mode() != want {
		t.Errorf("%s: %v, %v, want the mode %v", path, info, err, want)
	}
}

func TestAFileThatOthersCanReadGetsTheDocumentedMode(t *testing.T) {
	for _, mode := range []fs.FileMode{0o666, 0o604, 0o640, 0o620, 0o777, 0o600} {
		path := filledFile(t, disk.Options{})
		must(t, os.Chmod(path, mode))
		if s := open(t, path, &corev1.ConfigMap{}, disk.Options{}); len(stored(t, s)) != 1 {
			t.Errorf("a file with the mode %v is not used", mode)
		}
		wantPrivate(t, path)
	}
	path := newPath(t)
	writeFile(t, path, nil)
	must(t, os.Chmod(path, 0o666))
	open(t, path, &corev1.ConfigMap{}, disk.Options{})
	wantPrivate(t, path)
}

func TestAFileThatOthersCanReadIsSetAsideWithTheDocumentedMode(t *testing.T) {
	path := filledFile(t, disk.Options{})
	must(t, os.Chmod(path, 0o666))
	wantAside(t, path, &corev1.ConfigMap{}, disk.Options{Identity: thisIdentity}, "Identity")
	all, err := filepath.Glob(path + "*")
	if err != nil || len(all) != 3 { // with the lock
		t.Errorf("there is %v, %v", all, err)
	}
	for _, name := range all {
		wantPrivate(t, name)
	}
}

func TestASymbolicLinkIsRefusedAndLeftAlone(t *testing.T) {
	target, dir := filledFile(t, disk.Options{}), t.TempDir()
	before := readFile(t, target)
	for name, to := range map[string]string{"link": target, "dangling": filepath.Join(dir, "none"), "damaged": filepath.Join(dir, "text")} {
		link := filepath.Join(dir, name)
		must(t, os.Symlink(to, link))
		writeFile(t, filepath.Join(dir, "text"), []byte("text"))
		_, err := tryOpen(t, link, &corev1.ConfigMap{}, disk.Options{})
		if err == nil || !strings.Contains(err.Error(), link+": it is a symbolic link") || errors.Is(err, disk.ErrDamaged) {
			t.Errorf("%s: %v, want that it is a symbolic link", name, err)
		}
		if now, err := os.Readlink(link); now != to || err != nil {
			t.Errorf("%s leads to %q now, %v", name, now, err)
		}
	}
	if string(readFile(t, target)) != string(before) {
		t.Error("the file that a link leads to has changed")
	}
	if _, err := os.Stat(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file that a link leads to was made: %v", err)
	}

	// A link among the directories does no harm: the files next to the file are where it is.
	linked := filepath.Join(dir, "linked")
	must(t, os.Symlink(filepath.Dir(target), linked))
	if s := open(t, filepath.Join(linked, filepath.Base(target)), &corev1.ConfigMap{}, disk.Options{}); len(stored(t, s)) != 1 {
		t.Error("a file in a directory that a link leads to is not used")
	}
}
