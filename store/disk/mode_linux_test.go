package disk_test

import (
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/customcacheinformer/informer/store/disk"
)

// Only the owner of a file can change its mode.
func TestAFileOfAnotherOwnerThatOthersCanReadIsSetAside(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make files of other owners")
	}
	const owner, user = 65533, 65534
	path := filledFile(t, disk.Options{})
	for _, dir := range []string{filepath.Dir(path), filepath.Dir(filepath.Dir(path))} {
		if err := os.Chmod(dir, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	for name, mode := range map[string]os.FileMode{path: 0o666, path + ".lock": 0o666} {
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(name, owner, owner); err != nil {
			t.Fatal(err)
		}
	}
	// On Linux each thread has a user of its own for the files.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := syscall.Setfsuid(user); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Setfsuid(0); err != nil {
			t.Fatal(err)
		}
	}()
	wantAside(t, path, &corev1.ConfigMap{}, disk.Options{}, "its mode is -rw-rw-rw-, which cannot be changed to -rw-------")
	wantPrivate(t, path)
}
