package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
)

type (
	configMap = *corev1.ConfigMap
	event     = informer.Event[configMap]
)

// longestName is the limit of nearly all file systems. A ConfigMap may have a name of 253
// bytes, which exceeds it with the extension.
const longestName = 255

// marker is the name of a file that marks a directory as a mirror, so files in it may be
// removed.
const marker = ".recorder"

// retry sets the pauses after failures. It never gives up, because people repair disks.
var retry = informer.Backoff(time.Second, time.Minute, 0)

// disk has the methods of an [os.Root] that a mirror needs. Nothing leads out of an os.Root,
// not even a symbolic link.
type disk interface {
	FS() fs.FS
	MkdirAll(name string, perm fs.FileMode) error
	WriteFile(name string, data []byte, perm fs.FileMode) error
	Rename(oldname, newname string) error
	Remove(name string) error
}

// openDisk opens dir, which it creates if needed, or a new temporary directory if dir is
// empty. A mirror overwrites and removes files, so openDisk refuses a directory that is
// neither empty nor a mirror.
func openDisk(dir string) (*os.Root, error) {
	var err error
	if dir == "" {
		dir, err = os.MkdirTemp("", "recorder-")
	} else {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	entries, err := fs.ReadDir(root.FS(), ".")
	if err == nil && len(entries) > 0 {
		if _, err = root.Stat(marker); err != nil {
			err = fmt.Errorf("%s is not empty, and not a mirror: %w", dir, err)
		}
	}
	if err == nil {
		err = root.WriteFile(marker, nil, 0o600)
	}
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return root, nil
}

// mirror is a watcher that keeps a file for each ConfigMap. It does not remember which files
// it has written, because they are on the disk. It does not remember failed writes either,
// because the informer retries them. The informer calls it for many objects at once, but never
// for one object twice at a time.
type mirror struct {
	disk       disk
	configMaps informer.Reader[configMap]
	namespace  string // the namespace that is watched; empty for all
	log        func(format string, args ...any)

	// sweeping makes the sweep's check for an object and the removal of its file one step. The
	// sweep locks it; goroutines that write files hold it for reading.
	sweeping sync.RWMutex
}

// follow returns an informer that makes root a mirror of source once it runs, and the
// registration of the mirror.
func follow(source cache.ListerWatcher, namespace string, root disk, log func(string, ...any)) (*informer.CustomCacheInformer[configMap], *informer.Registration, error) {
	inf, err := informer.NewFrom(source, informer.Options[configMap]{
		Transform:    informer.StripManagedFields[configMap],
		DrainTimeout: 10 * time.Second, // waiting events are written before the program ends
		ErrorHandler: func(_ context.Context, err error) { log("%v", err) },
		Observer: &informer.Observer{Handled: func(i informer.HandledInfo) {
			if i.Err == nil {
				log("%-7s %s", i.Type, i.Key)
			}
		}},
	})
	if err != nil {
		return nil, nil, err
	}
	m := &mirror{disk: root, configMaps: inf, namespace: namespace, log: log}
	reg, err := inf.AddWatcher(m, informer.WatcherOptions{Name: "mirror", Workers: 8, Retry: retry, OnSynced: m.sweep})
	return inf, reg, err
}

func (m *mirror) Add(_ context.Context, e event) error { return m.write(e) }

func (m *mirror) Update(_ context.Context, e event) error { return m.write(e) }

// Delete also removes the leftovers of a failed write. A delete comes even if the add has
// never succeeded, and no other call would remove them.
func (m *mirror) Delete(_ context.Context, e event) error {
	file, err := fileOf(e.Key())
	if err != nil {
		return err
	}
	return m.remove(file)
}

// write replaces a file as a whole: a reader sees either the old state or the new one. It does
// not wait until the data is safe on the disk, because the next start writes every file again.
func (m *mirror) write(e event) error {
	file, err := fileOf(e.Key())
	if err != nil {
		return err
	}
	data, err := encode(e.New)
	if err != nil {
		return err
	}
	m.sweeping.RLock()
	defer m.sweeping.RUnlock()
	if err := m.disk.MkdirAll(path.Dir(file), 0o700); err != nil {
		return err
	}
	// Only this call writes this name, because there is one call at a time for an object.
	if err := m.disk.WriteFile(tempOf(file), data, 0o600); err != nil {
		return err
	}
	return m.disk.Rename(tempOf(file), file)
}

// remove removes a file and its temporary file. It is no error if they do not exist.
func (m *mirror) remove(file string) error {
	for _, name := range []string{file, tempOf(file)} {
		if err := m.disk.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// sweep removes the files of objects that were deleted while the program did not run. It must
// be called as OnSynced, because the informer then knows all objects. It is called only once,
// so it retries failures itself. The mirror is not synced until sweep returns.
func (m *mirror) sweep(ctx context.Context) {
	for failures := 1; ; failures++ {
		err := m.sweepOnce()
		if err == nil {
			return
		}
		if failures == 1 {
			m.log("sweep: %v", err)
		}
		pause, _ := retry(failures, err)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

// sweepOnce visits every file once, even if some fail.
func (m *mirror) sweepOnce() error {
	var failed []error
	_ = fs.WalkDir(m.disk.FS(), ".", func(file string, entry fs.DirEntry, err error) error {
		key, ours := keyOf(file)
		switch {
		case errors.Is(err, fs.ErrNotExist): // the file has gone meanwhile
		case err != nil:
			failed = append(failed, err)
		case ours && entry.Type().IsRegular() && (m.namespace == "" || m.namespace == key.Namespace):
			failed = append(failed, m.removeIfGone(key))
		}
		return nil
	})
	return errors.Join(failed...)
}

// removeIfGone asks the informer whether the object exists, and does not look at the files
// written so far: a write may have failed and be waiting for its retry, and then the file of
// the last run is the only one. If the object is created after the check, its file is written
// after the removal. If the object is deleted after the check, a delete event follows.
func (m *mirror) removeIfGone(key types.NamespacedName) error {
	m.sweeping.Lock()
	defer m.sweeping.Unlock()
	if _, exists, err := m.configMaps.Get(key); err != nil || exists {
		return err
	}
	file, err := fileOf(key)
	if err != nil {
		return err
	}
	if err := m.remove(file); err != nil {
		return err
	}
	m.log("%-7s %s, while nobody watched", informer.EventDeleted, key)
	return nil
}

// fileOf returns the file of an object. API servers do not accept names that are unfit for a
// file, but the mirror should not have to rely on that. The error is permanent, because a
// retry would not help.
func fileOf(key types.NamespacedName) (string, error) {
	wrong := append(validation.IsDNS1123Label(key.Namespace), validation.IsDNS1123Subdomain(key.Name)...)
	if len(wrong) > 0 {
		return "", fmt.Errorf("%q cannot be the name of a file: %s: %w", key, strings.Join(wrong, "; "), informer.ErrPermanent)
	}
	if base := key.Name + ".json"; len(base) <= longestName {
		return key.Namespace + "/" + base, nil
	}
	return "", fmt.Errorf("the name of %q is too long for a file: %w", key, informer.ErrPermanent)
}

// tempOf returns the name under which a file is written before it is renamed. It is never the
// file of another object, whatever dots names contain, because those files end in .json.
func tempOf(file string) string { return strings.TrimSuffix(file, ".json") + ".tmp" }

// keyOf returns the object that a file, or a temporary file, belongs to. It reports false if
// there is none.
func keyOf(file string) (types.NamespacedName, bool) {
	namespace, base, _ := strings.Cut(file, "/")
	key := types.NamespacedName{Namespace: namespace, Name: strings.TrimSuffix(base, path.Ext(base))}
	own, err := fileOf(key)
	return key, err == nil && (file == own || file == tempOf(own))
}

// encode returns a ConfigMap in a form that kubectl can read.
func encode(obj configMap) ([]byte, error) {
	written := *obj // obj is shared with the store
	written.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}
	data, err := json.MarshalIndent(&written, "", "  ")
	return append(data, '\n'), err
}
