package disk_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/customcacheinformer/informer/store/disk"
)

// The users of the tests of rights.
const owner, user = 65533, 65534

// filledFileOf makes a file with an object and gives all files to owner, with these modes. It acts as
// user until the end of the test.
func filledFileOf(t *testing.T, dir, file, lock os.FileMode) (path string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can make files of other owners")
	}
	path = filledFile(t, disk.Options{})
	for name, mode := range map[string]os.FileMode{filepath.Dir(filepath.Dir(path)): 0o777, filepath.Dir(path): dir, path: file, path + ".lock": lock} {
		must(t, os.Chown(name, owner, owner))
		must(t, os.Chmod(name, mode))
	}
	// On Linux each thread has a user of its own for the files.
	runtime.LockOSThread()
	must(t, syscall.Setfsuid(user))
	t.Cleanup(func() {
		must(t, syscall.Setfsuid(0))
		runtime.UnlockOSThread()
	})
	return path
}

// Only the owner of a file can change its mode.
func TestAFileOfAnotherOwnerThatOthersCanReadIsSetAside(t *testing.T) {
	path := filledFileOf(t, 0o777, 0o666, 0o666)
	wantAside(t, path, &corev1.ConfigMap{}, disk.Options{}, "its mode is -rw-rw-rw-, which cannot be changed to -rw-------")
	wantPrivate(t, path)
}

func TestTheErrorOfAFileOfAnotherUserHasOwnersAndRemedy(t *testing.T) {
	for name, c := range map[string]struct{ dir, file, lock os.FileMode }{
		"all files":     {0o777, 0o600, 0o600},
		"the lock":      {0o777, 0o666, 0o600},
		"the file":      {0o777, 0o600, 0o666},
		"the directory": {0o755, 0o666, 0o666}, // the file can be read, but not be set aside
	} {
		t.Run(name, func(t *testing.T) {
			path := filledFileOf(t, c.dir, c.file, c.lock)
			_, err := tryOpen(t, path, &corev1.ConfigMap{}, disk.Options{})
			if !errors.Is(err, fs.ErrPermission) {
				t.Fatalf("Open: %v, want that access is denied", err)
			}
			for file, mode := range map[string]os.FileMode{filepath.Dir(path): fs.ModeDir | c.dir, path: c.file, path + ".lock": c.lock} {
				if says := fmt.Sprintf("%s has user %d, group %d and mode %v", file, owner, owner, mode); !strings.Contains(err.Error(), says) {
					t.Errorf("%v, want it to say: %s", err, says)
				}
			}
			for _, says := range []string{"disk: open " + path, "the process has user 0 and groups", "chown", "fsGroup", "delete them if no other process"} {
				if !strings.Contains(err.Error(), says) {
					t.Errorf("%v, want it to say: %s", err, says)
				}
			}
			if left, err := filepath.Glob(path + "*"); len(left) != 2 || err != nil {
				t.Errorf("there are %v, %v, want the file and its lock as before", left, err)
			}
		})
	}
}
