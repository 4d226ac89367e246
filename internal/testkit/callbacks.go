package testkit

import (
	"context"

	"github.com/customcacheinformer/informer"
)

// Callbacks maps the name of a callback to a function that has the callback call change. If the
// callback is a watcher, the function returns it.
var Callbacks = map[string]func(opts *Options, change func()) informer.ResourceWatcher[ConfigMap]{
	"Transform": func(opts *Options, change func()) informer.ResourceWatcher[ConfigMap] {
		opts.Transform = func(obj ConfigMap) (ConfigMap, error) { change(); return obj, nil }
		return nil
	},
	"index function": func(opts *Options, change func()) informer.ResourceWatcher[ConfigMap] {
		opts.Indexers = informer.Indexers[ConfigMap]{"x": func(ConfigMap) ([]string, error) { change(); return nil, nil }}
		return nil
	},
	"Observer": func(opts *Options, change func()) informer.ResourceWatcher[ConfigMap] {
		opts.Observer = &informer.Observer{Apply: func(informer.ApplyInfo) { change() }}
		return nil
	},
	"watcher": func(_ *Options, change func()) informer.ResourceWatcher[ConfigMap] {
		return informer.WatcherFunc[ConfigMap](func(context.Context, Event) error { change(); return nil })
	},
}
