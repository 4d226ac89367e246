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

// longestName is what nearly all file systems take. A ConfigMap may have a name of 253
// bytes, which with the extension is more.
const longestName = 255

// marker is a file that says that a directory is a mirror, and may be swept.
const marker = ".recorder"

// retry paces all that has failed. It never gives up: disks are healed by people.
var retry = informer.Backoff(time.Second, time.Minute, 0)

// disk is what a mirror needs of an [os.Root], which nothing leads out of, not even a
// symbolic link.
type disk interface {
	FS() fs.FS
	MkdirAll(name string, perm fs.FileMode) error
	WriteFile(name string, data []byte, perm fs.FileMode) error
	Rename(oldname, newname string) error
	Remove(name string) error
}

// openDisk returns dir, which it creates if need be, or a new temporary directory. A
// mirror overwrites and removes files, so a directory that holds something and is none
// is refused.
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

// mirror is a watcher that keeps a file of each ConfigMap. It knows nothing of what it
// has written, nor what is to be written again: the one is on the disk, the other is
// the informer's business, which calls it for many objects at once, but never twice at
// a time for one.
type mirror struct {
	disk       disk
	configMaps informer.Reader[configMap]
	namespace  string // all that is watched; empty for everything
	log        func(format string, args ...any)

	// sweeping is held by the sweep between its look at an object and the removal of
	// the file, and shared by those that write files.
	sweeping sync.RWMutex
}

// follow returns an informer that makes root a mirror of source once it runs, and the
// mirror's registration.
func follow(source cache.ListerWatcher, namespace string, root disk, log func(string, ...any)) (*informer.CustomCacheInformer[configMap], *informer.Registration, error) {
	inf, err := informer.New(source, informer.Options[configMap]{
		Transform:    informer.StripManagedFields[configMap],
		DrainTimeout: 10 * time.Second, // what waits is written before the program ends
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

// Delete also takes away what a failed write may have left. Nobody else would: the
// delete comes also if the add has never succeeded.
func (m *mirror) Delete(_ context.Context, e event) error {
	file, err := fileOf(e.Key())
	if err != nil {
		return err
	}
	return m.remove(file)
}

// write replaces a file as a whole: whoever reads it sees the old state or the new one.
// It does not wait for the disk to have it for good, because the next start writes
// everything anew.
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
	// Nobody else writes this name, as there is one call at a time for an object.
	if err := m.disk.WriteFile(tempOf(file), data, 0o600); err != nil {
		return err
	}
	return m.disk.Rename(tempOf(file), file)
}

// remove removes a file and its temporary one. That there is none is what was wanted.
func (m *mirror) remove(file string) error {
	for _, name := range []string{file, tempOf(file)} {
		if err := m.disk.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// sweep removes the files of objects that were deleted while nobody watched. To be
// called as OnSynced: then the informer knows of all that exist. Nobody calls it again
// if it fails, so it does that itself; until then the mirror is not synced.
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

// sweepOnce goes over all files once, whatever happens with some of them.
func (m *mirror) sweepOnce() error {
	var failed []error
	_ = fs.WalkDir(m.disk.FS(), ".", func(file string, entry fs.DirEntry, err error) error {
		key, ours := keyOf(file)
		switch {
		case errors.Is(err, fs.ErrNotExist): // it has gone meanwhile
		case err != nil:
			failed = append(failed, err)
		case ours && entry.Type().IsRegular() && (m.namespace == "" || m.namespace == key.Namespace):
			failed = append(failed, m.removeIfGone(key))
		}
		return nil
	})
	return errors.Join(failed...)
}

// removeIfGone asks the informer, and not what was written so far, whether the object
// exists: the write may have failed and wait for its retry, and then the file of the
// last run is all there is. If the object is created after that look, its file is
// written after the removal. If it is deleted after that look, its delete will come.
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

// fileOf returns the file of an object. An API server lets no name pass that would not
// do, but it is not the mirror that should have to believe that. No retry would help.
func fileOf(key types.NamespacedName) (string, error) {
	wrong := append(validation.IsDNS1123Label(key.Namespace), validation.IsDNS1123Subdomain(key.Name)...)
	if len(wrong) > 0 {
		return "", fmt.Errorf("no file can have the name of %q: %s: %w", key, strings.Join(wrong, "; "), informer.ErrPermanent)
	}
	if base := key.Name + ".json"; len(base) <= longestName {
		return key.Namespace + "/" + base, nil
	}
	return "", fmt.Errorf("the name of %q is too long for a file: %w", key, informer.ErrPermanent)
}

// tempOf returns where a file is written before it is moved to its place. It is no
// other object's file, whatever dots there are in names: those end in .json.
func tempOf(file string) string { return strings.TrimSuffix(file, ".json") + ".tmp" }

// keyOf returns the object that a file, or a temporary one, is of, and whether it is of any.
func keyOf(file string) (types.NamespacedName, bool) {
	namespace, base, _ := strings.Cut(file, "/")
	key := types.NamespacedName{Namespace: namespace, Name: strings.TrimSuffix(base, path.Ext(base))}
	own, err := fileOf(key)
	return key, err == nil && (file == own || file == tempOf(own))
}

// encode returns a ConfigMap as kubectl would take it back.
func encode(obj configMap) ([]byte, error) {
	written := *obj // obj is shared with the store
	written.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}
	data, err := json.MarshalIndent(&written, "", "  ")
	return append(data, '\n'), err
}
