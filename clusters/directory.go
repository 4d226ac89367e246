package clusters

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/customcacheinformer/informer/internal/channel"
)

// Directory is a [Source] that reads the kubeconfigs in a directory, such as a Secret that is mounted as a volume. The
// name of a cluster is the name of its file without the extension, which is .yaml, .yml or .kubeconfig. The name must
// be valid for a Secret. Other files, directories, and files whose names begin with a dot are ignored. A link that
// leads out of the directory is refused, and so are two files with the same name and different extensions.
//
// If the directory itself cannot be read, the clusters stay as they are. To write a kubeconfig, write a file with
// another extension and rename it, because half of a kubeconfig may look like a whole one.
type Directory struct {
	// Path is the path of the directory. It is required.
	Path string
	// Interval is the pause between two readings of the directory. It must not be negative. Defaults to 10 s.
	Interval time.Duration
}

type directoryFeed struct {
	Directory
	name   string
	set    *set
	report func(context.Context, error)
	done   chan struct{} // closed when the followers were called for the first reading
	mu     sync.Mutex    // protects err
	err    error         // of the last reading
}

func (d Directory) open(name string, s *set, report func(context.Context, error)) (feed, error) {
	switch {
	case d.Path == "":
		return nil, errors.New("Directory.Path is empty")
	case d.Interval < 0:
		return nil, fmt.Errorf("Directory.Interval is %v, less than 0", d.Interval)
	}
	d.Interval = cmp.Or(d.Interval, 10*time.Second)
	return &directoryFeed{Directory: d, name: name, set: s, report: report, done: make(chan struct{})}, nil
}

func (f *directoryFeed) synced() <-chan struct{} { return f.done }

func (f *directoryFeed) trouble() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

func (f *directoryFeed) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		files, err := read(f.Path)
		f.mu.Lock()
		isNew := text(err) != text(f.err)
		f.err = err
		f.mu.Unlock()
		if isNew && err != nil {
			f.report(ctx, fmt.Errorf("clusters %s: %w", f.name, err))
		}
		if err == nil {
			f.give(ctx, files)
		}
		select {
		case <-time.After(f.Interval):
		case <-ctx.Done():
		}
	}
	return nil
}

// give updates the set. It returns when all followers were called. It reports an error only when it is new, not after
// each reading.
func (f *directoryFeed) give(ctx context.Context, files map[string]file) {
	for _, name := range f.set.names() {
		if _, found := files[name]; !found {
			files[name] = file{} // it leaves
		}
	}
	var calls sync.WaitGroup
	for name, file := range files {
		calls.Go(func() {
			isNew, refused, failed := f.set.update(ctx, name, file.content, file.err)
			if err := errors.Join(refused, failed); err != nil && isNew {
				f.report(ctx, fmt.Errorf("clusters %s: cluster %s: %w", f.name, name, err))
			}
		})
	}
	calls.Wait()
	if ctx.Err() == nil && !channel.Closed(f.done) {
		close(f.done)
	}
}

type file struct {
	content []byte
	err     error
}

// read returns the files of the directory, by the names of their clusters. A file gets an error if its name is wrong or
// comes twice, or if it is larger than MaxSize or not a regular file of the directory.
func read(directory string) (map[string]file, error) {
	// A Root follows no link out of the directory. It is opened each time, because the path may lead elsewhere by now.
	root, err := os.OpenRoot(directory)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return nil, err
	}
	files := map[string]file{}
	for _, entry := range entries {
		extension := path.Ext(entry.Name())
		name := strings.TrimSuffix(entry.Name(), extension)
		if strings.HasPrefix(entry.Name(), ".") || entry.IsDir() || !slices.Contains([]string{".yaml", ".yml", ".kubeconfig"}, extension) {
			continue
		}
		var found file
		info, err := root.Stat(entry.Name())
		_, twice := files[name]
		switch {
		case err != nil:
			found.err = err
		case twice:
			found.err = &RefusedError{"", "two files have this name, with different extensions"}
		case len(validation.IsDNS1123Subdomain(name)) > 0:
			found.err = &RefusedError{"", "the name of the file is not a name that a Secret could have"}
		case !info.Mode().IsRegular() || info.Size() > MaxSize: // a named pipe would block
			found.err = &RefusedError{"", fmt.Sprintf("is not a regular file of at most %d KiB", MaxSize>>10)}
		default:
			found.content, found.err = root.ReadFile(entry.Name())
		}
		files[name] = found
	}
	return files, nil
}
