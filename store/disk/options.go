package disk

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// Identity says what the objects of a file are. A file that has another one is set
// aside. All fields are compared as they are; what does not apply stays empty. The type
// of the objects, down to the fields of its structs, is compared too, and need not be
// told here.
type Identity struct {
	// Cluster tells clusters apart. The UID of the namespace kube-system does,
	// which stays when the address of the API server changes.
	Cluster string `json:",omitempty"`
	// Resource is what is listed, such as "pods" or "widgets.v1.example.com".
	Resource string `json:",omitempty"`
	// Namespace is the one that is listed, "" for all.
	Namespace string `json:",omitempty"`
	// Selector is by what the list is restricted: labels, fields, or both, in any form.
	Selector string `json:",omitempty"`
	// Version is of what the program makes of the objects: change it when a Transform
	// or an index function becomes another.
	Version string `json:",omitempty"`
}

// field is one of an Identity, or of a label.
type field struct{ name, value string }

func (i Identity) fields() []field {
	return []field{
		{"Identity.Cluster", i.Cluster},
		{"Identity.Resource", i.Resource},
		{"Identity.Namespace", i.Namespace},
		{"Identity.Selector", i.Selector},
		{"Identity.Version", i.Version},
	}
}

// Durability is what a Store survives.
type Durability int

const (
	// SurvivePowerLoss has every write on the disk before the call returns, by two
	// fdatasync. It is the zero value.
	SurvivePowerLoss Durability = iota

	// SurviveProcess leaves it to the operating system when to write to the disk.
	// Nothing is lost however the process ends, by kill -9 too. But if the machine
	// ends without the store having been closed, by a loss of power or a panic of the
	// kernel, or if the file then comes to another machine, the whole file is set aside at the next Open: the source is listed anew,
	// and deletes that some watcher had not been told of are never told. On systems
	// other than Linux, where a run of the machine has no number, it is enough that the
	// process ends without closing the store.
	SurviveProcess
)

// Options configures a [Store]. The zero value is ready to use.
type Options struct {
	// Identity says what the objects are. It should be set, or nobody will notice
	// that the file is of another cluster. Defaults to one that has nothing but the
	// type of the objects.
	Identity Identity

	// Durability is what the store survives. Defaults to SurvivePowerLoss.
	Durability Durability

	// Indexers are the first that AddIndexers is called with. Defaults to none.
	Indexers cache.Indexers

	// ErrorHandler is told of what no method can return: a *SetAsideError during Open,
	// what List, ListKeys and ListIndexFuncValues could not read, and, once, the panic
	// by which a damaged file was noticed. It is called from the goroutine that has met
	// with the error, and must not call the store. Defaults to logging with klog.
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
	for _, f := range o.Identity.fields() {
		if !utf8.ValidString(f.value) { // JSON, in which it is stored, would change it
			return fmt.Errorf("Options.%s is %q, which is no UTF-8", f.name, f.value)
		}
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
