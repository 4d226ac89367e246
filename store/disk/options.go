package disk

import (
	"errors"
	"fmt"

	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/customcacheinformer/informer/store"
)

// Durability chooses which failures the data of a Store survives.
type Durability int

const (
	// SurvivePowerLoss has every write on the disk before the call returns, by two fdatasync.
	// It is the zero value.
	SurvivePowerLoss Durability = iota

	// SurviveProcess lets the operating system decide when to write to the disk. Nothing is
	// lost however the process ends, even by kill -9. But if the machine ends while the store
	// is open, by a loss of power or a panic of the kernel, or if the file is then moved to
	// another machine, the next Open sets the whole file aside: the informer lists the source
	// again, and deletes that some watcher did not get never come. On systems other than
	// Linux, which do not number the runs of the machine, the file is set aside even if only
	// the process ends without closing the store.
	SurviveProcess
)

// Options configures a [Store]. Identity must be set. The zero value of each other field is ready to
// use.
type Options struct {
	// Identity is which objects the file holds. Without its Cluster, Open returns an error: a file
	// of another cluster would go unnoticed.
	Identity store.Identity

	// Durability chooses which failures the data survives. Defaults to SurvivePowerLoss.
	Durability Durability

	// Indexers are passed to AddIndexers by Open. Defaults to none.
	Indexers cache.Indexers

	// ErrorHandler is called with errors that no method can return: a *SetAsideError during
	// Open and, once, the panic by which a damaged file was noticed. It is called from the goroutine in which the error
	// occurred, and must not call the store. Defaults to logging with klog.
	ErrorHandler func(error)
}

func (o Options) withDefaults() Options {
	if o.ErrorHandler == nil {
		o.ErrorHandler = func(err error) { klog.Background().Error(err, "Disk store") }
	}
	return o
}

func (o Options) check() error {
	if o.Durability < SurvivePowerLoss || o.Durability > SurviveProcess {
		return fmt.Errorf("Options.Durability is %d, which is no Durability", o.Durability)
	}
	return checkIndexers(o.Indexers)
}

func checkIndexers(indexers cache.Indexers) error {
	for name, f := range indexers {
		if f == nil {
			return fmt.Errorf("the indexer %q is nil", name)
		}
		if len(name) > maxIndexName {
			return errors.New("the name of an index is longer than 1024 bytes")
		}
	}
	return nil
}
