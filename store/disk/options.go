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
	// SurvivePowerLoss writes every change to the disk before the call returns, with two calls of
	// fdatasync. It is the zero value.
	SurvivePowerLoss Durability = iota

	// SurviveProcess lets the operating system decide when to write to the disk. Nothing is lost however
	// the process ends, even by kill -9. But if the machine ends while the store is open, by a loss of
	// power or a panic of the kernel, the next Open sets the whole file aside. The same happens if the
	// process ends without closing the store, and the file is then moved to another machine. The informer
	// then lists again, and a watcher never gets the deletes that it had not received by then. On systems
	// other than Linux, the file is set aside even if only the process ends without closing the store:
	// there the store cannot tell whether the machine has restarted.
	SurviveProcess
)

// Options configures a [Store]. Identity must be set. The other fields may be zero.
type Options struct {
	// Identity describes the objects that the file holds. If its Cluster is empty, Open returns an error,
	// because it would not notice a file of another cluster.
	Identity store.Identity

	// Durability chooses which failures the data survives. Defaults to SurvivePowerLoss.
	Durability Durability

	// Indexers are the indexes that Open adds, see [Store.AddIndexers]. Defaults to none.
	Indexers cache.Indexers

	// ErrorHandler is called with errors that no method can return. Open calls it with a
	// *SetAsideError if it sets the file aside, and with another error if it cannot remove a file that
	// was set aside before. If a damaged file causes a panic, the store recovers it: the call returns
	// ErrDamaged, and ErrorHandler gets an error with the panic and its stack, once for each Store.
	// ErrorHandler is called in the goroutine of the call that failed, and must not call the store.
	// Defaults to logging with klog.
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
		return fmt.Errorf("Options.Durability is %d, which is not a Durability", o.Durability)
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
