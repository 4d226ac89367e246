package storetest_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/store/storetest"
)

var brokenScans = []broken{
	{
		fault: "Scan begins with the key after",
		durable: scannedBy(func(d *informertest.Durable, ctx context.Context, after string, limit int) ([]informer.Entry, error) {
			objs, err := d.Scan(ctx, "", 1<<30)
			i := slices.IndexFunc(objs, func(e informer.Entry) bool { return e.Key >= after })
			return objs[max(0, i):min(len(objs), max(0, i)+limit)], err
		}),
		found: []string{"Scan/gives everything once and in order"},
	}, {
		fault: "Scan is not in order",
		durable: scannedBy(func(d *informertest.Durable, ctx context.Context, after string, limit int) ([]informer.Entry, error) {
			objs, err := d.Scan(ctx, after, limit)
			slices.Reverse(objs)
			return objs, err
		}),
		found: []string{"Scan/gives everything once and in order"},
	}, {
		fault: "Scan is in the order of namespace and name",
		durable: scannedBy(func(d *informertest.Durable, ctx context.Context, after string, limit int) ([]informer.Entry, error) {
			order := func(key string) string { return strings.ReplaceAll(key, "/", "\x00") }
			objs, err := d.Scan(ctx, "", 1<<30)
			slices.SortFunc(objs, func(a, b informer.Entry) int { return strings.Compare(order(a.Key), order(b.Key)) })
			objs = slices.DeleteFunc(objs, func(e informer.Entry) bool { return order(e.Key) <= order(after) })
			return objs[:min(len(objs), limit)], err
		}),
		found: []string{"Scan/gives everything once and in order"},
	}, {
		fault: "Scan drops the last page",
		durable: scannedBy(func(d *informertest.Durable, ctx context.Context, after string, limit int) ([]informer.Entry, error) {
			objs, err := d.Scan(ctx, after, limit)
			if len(objs) < limit {
				return nil, err
			}
			return objs, err
		}),
		found: []string{"Scan/gives everything once and in order"},
	}, {
		fault: "Scan has no limit",
		durable: scannedBy(func(d *informertest.Durable, ctx context.Context, after string, _ int) ([]informer.Entry, error) {
			return d.Scan(ctx, after, 1<<30)
		}),
		found: []string{"Scan/gives everything once and in order"},
	}, {
		fault: "Scan must find the key after",
		durable: scannedBy(func(d *informertest.Durable, ctx context.Context, after string, limit int) ([]informer.Entry, error) {
			if _, exists, _ := d.Get(ctx, after); after != "" && !exists {
				return nil, nil
			}
			return d.Scan(ctx, after, limit)
		}),
		found: []string{"Scan/gives what comes after a key", "Scan/misses and doubles nothing if it is written between pages"},
	}, {
		fault: "Scan of nothing is an error",
		durable: scannedBy(func(d *informertest.Durable, ctx context.Context, after string, limit int) ([]informer.Entry, error) {
			objs, err := d.Scan(ctx, after, limit)
			if len(objs) == 0 {
				err = errors.New("no more")
			}
			return objs, err
		}),
		found: []string{"Scan/gives nothing of an empty store"},
	}, {
		fault: "Scan ends with its ctx and says nothing",
		durable: scannedBy(func(d *informertest.Durable, ctx context.Context, after string, limit int) ([]informer.Entry, error) {
			all, err := d.Scan(context.WithoutCancel(ctx), after, limit)
			for i := range all {
				if ctx.Err() != nil {
					return all[:i], nil
				}
			}
			return all, err
		}),
		found: []string{"Scan/does not take the end of a ctx for the end of the objects"},
	},
}

// durable is a Durable that is correct except for the functions that are set.
type durable struct {
	*informertest.Durable
	scan       func(d *informertest.Durable, ctx context.Context, after string, limit int) ([]informer.Entry, error)
	apply      func(d *informertest.Durable, ctx context.Context, changes []informer.Change, bookmark string) error
	tombstones func(all []informer.Entry) []informer.Entry
	forget     func(d *informertest.Durable, key string, uids []types.UID) []types.UID
	reopened   func(d *informertest.Durable)
	ahead      *string // if set, Apply writes this bookmark before the changes
}

func (d *durable) Scan(ctx context.Context, after string, limit int) ([]informer.Entry, error) {
	return either(d.scan, (*informertest.Durable).Scan)(d.Durable, ctx, after, limit)
}

func (d *durable) Apply(ctx context.Context, changes []informer.Change, bookmark string) error {
	if d.ahead != nil {
		*d.ahead = bookmark
	}
	return either(d.apply, (*informertest.Durable).Apply)(d.Durable, ctx, changes, bookmark)
}

func (d *durable) Resume(ctx context.Context) (string, error) {
	rv, err := d.Durable.Resume(ctx)
	if d.ahead != nil {
		rv = *d.ahead
	}
	return rv, err
}

func (d *durable) Tombstones(ctx context.Context) ([]informer.Entry, error) {
	all, err := d.Durable.Tombstones(ctx)
	if d.tombstones != nil {
		all = d.tombstones(all)
	}
	return all, err
}

func (d *durable) Forget(ctx context.Context, tombstones map[string][]types.UID) error {
	others := map[string][]types.UID{}
	for key, uids := range tombstones {
		others[key] = uids
		if d.forget != nil {
			others[key] = d.forget(d.Durable, key, uids)
		}
	}
	return d.Durable.Forget(ctx, others)
}

// lasting returns a function that makes a Durable like d.
func lasting(d durable) func() informer.Durable {
	return func() informer.Durable {
		d := d
		d.Durable = informertest.NewDurable()
		if d.ahead != nil {
			d.ahead = new(string)
		}
		return &d
	}
}

// scannedBy is like lasting, for a Durable with another Scan.
func scannedBy(scan func(d *informertest.Durable, ctx context.Context, after string, limit int) ([]informer.Entry, error)) func() informer.Durable {
	return lasting(durable{scan: scan})
}

// reopening returns options for the stores that lasting makes. A crash loses lost writes.
func reopening(lost int) storetest.DurableOptions {
	reopen := func(safe bool) func(*testing.T, informer.Durable) informer.Durable {
		return func(_ *testing.T, s informer.Durable) informer.Durable {
			if x, ok := s.(*indexed); ok {
				s = x.durable
			}
			d := *s.(*durable)
			if safe {
				d.LoseOnCrash(0)
			}
			d.Durable = d.Reopen()
			d.LoseOnCrash(lost)
			if d.reopened != nil {
				d.reopened(d.Durable)
			}
			return &d
		}
	}
	return storetest.DurableOptions{Reopen: reopen(true), Crash: reopen(lost == 0)}
}

func losesLast(opts storetest.DurableOptions) storetest.DurableOptions {
	opts.LosesLast = true
	return opts
}

// losing is like lasting, but a crash loses the last write.
func losing(d durable) func() informer.Durable {
	return func() informer.Durable {
		s := lasting(d)().(*durable)
		s.LoseOnCrash(1)
		return s
	}
}

// indexed is a DurableIndexer that reads all objects for each answer.
type indexed struct {
	*durable
	key   func(informer.Entry) string // the key that an index has for an object
	mu    sync.Mutex
	funcs cache.Indexers
}

// indexedUnder returns a function that makes a DurableIndexer.
func indexedUnder(key func(informer.Entry) string) func() informer.Durable {
	return func() informer.Durable {
		return &indexed{durable: lasting(durable{})().(*durable), key: key, funcs: cache.Indexers{}}
	}
}

func (x *indexed) GetIndexers() cache.Indexers {
	x.mu.Lock()
	defer x.mu.Unlock()
	return maps.Clone(x.funcs)
}

func (x *indexed) AddIndexers(indexers cache.Indexers) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	for name := range indexers {
		if x.funcs[name] != nil {
			return errors.New("taken")
		}
	}
	maps.Copy(x.funcs, indexers)
	return nil
}

func (x *indexed) ByIndex(ctx context.Context, name, value string) (found []informer.Entry, err error) {
	f := x.GetIndexers()[name]
	if f == nil {
		return nil, errors.New("there is none")
	}
	all, err := x.Scan(ctx, "", 1<<30)
	for _, e := range all {
		if vals, _ := f(e.Object); slices.Contains(vals, value) {
			found = append(found, informer.Entry{Key: x.key(e), Object: e.Object})
		}
	}
	return found, err
}

func keyGiven(e informer.Entry) string { return e.Key }

// keyMade returns the key that client-go makes of an object.
func keyMade(e informer.Entry) string { return cache.MetaObjectToName(e.Object).String() }

func isDelete(change informer.Change) bool { return change.Delete }

var brokenDurables = []broken{
	{
		fault: "objects are kept under keys that it makes",
		durable: lasting(durable{apply: func(d *informertest.Durable, ctx context.Context, changes []informer.Change, bookmark string) error {
			changes = slices.Clone(changes)
			for i := range changes {
				changes[i].Key = keyMade(changes[i].Entry)
			}
			return d.Apply(ctx, changes, bookmark)
		}}),
		found: []string{"Durable/keeps objects under the keys that it is given", "Durable/tells tombstones of one UID apart by their keys"},
	}, {
		fault: "a page has keys that it makes",
		durable: scannedBy(func(d *informertest.Durable, ctx context.Context, after string, limit int) ([]informer.Entry, error) {
			page, err := d.Scan(ctx, after, limit)
			for i := range page {
				page[i].Key = keyMade(page[i])
			}
			return page, err
		}),
		found: []string{"Durable/keeps objects under the keys that it is given"},
	}, {
		fault:   "an index has keys that it makes",
		durable: indexedUnder(keyMade),
		found:   []string{"Indexer/finds objects of one name under different keys"},
	}, {
		fault: "tombstones are told apart by UID alone",
		durable: lasting(durable{tombstones: func(all []informer.Entry) []informer.Entry {
			return slices.CompactFunc(slices.SortedFunc(slices.Values(all), func(a, b informer.Entry) int {
				return strings.Compare(string(a.Object.GetUID()), string(b.Object.GetUID()))
			}),
				func(a, b informer.Entry) bool { return a.Object.GetUID() == b.Object.GetUID() })
		}}),
		found: []string{"Durable/tells tombstones of one UID apart by their keys"},
	}, {
		fault: "each delete keeps a tombstone",
		durable: lasting(durable{apply: func(d *informertest.Durable, ctx context.Context, changes []informer.Change, bookmark string) error {
			changes = slices.Clone(changes)
			for i := range changes {
				changes[i].NoTombstone = false
			}
			return d.Apply(ctx, changes, bookmark)
		}}),
		found: []string{"Durable/deletes without a tombstone"},
	}, {
		fault: "tombstones are told apart by key alone",
		durable: lasting(durable{tombstones: func(all []informer.Entry) []informer.Entry {
			return slices.CompactFunc(slices.SortedFunc(slices.Values(all), func(a, b informer.Entry) int { return strings.Compare(a.Key, b.Key) }),
				func(a, b informer.Entry) bool { return a.Key == b.Key })
		}}),
		found: []string{"Durable/tells tombstones apart by key and UID"},
	}, {
		fault:   "there are no tombstones",
		durable: lasting(durable{tombstones: func([]informer.Entry) []informer.Entry { return nil }}),
		found:   []string{"Durable/keeps what is deleted as a tombstone", "Durable/finds everything again"},
	}, {
		fault: "tombstones are forgotten by key alone",
		durable: lasting(durable{forget: func(d *informertest.Durable, forgotten string, _ []types.UID) (uids []types.UID) {
			all, _ := d.Tombstones(context.Background())
			for _, e := range all {
				if e.Key == forgotten {
					uids = append(uids, e.Object.GetUID())
				}
			}
			return uids
		}}),
		found: []string{"Durable/forgets tombstones by key and UID"},
	}, {
		fault: "only the first tombstone of a key is forgotten",
		durable: lasting(durable{forget: func(_ *informertest.Durable, _ string, uids []types.UID) []types.UID {
			return uids[:min(len(uids), 1)]
		}}),
		found: []string{"Durable/forgets tombstones by key and UID"},
	}, {
		fault: "what was not there is no tombstone",
		durable: lasting(durable{apply: func(d *informertest.Durable, ctx context.Context, changes []informer.Change, bookmark string) error {
			changes = slices.DeleteFunc(slices.Clone(changes), func(change informer.Change) bool {
				_, exists, _ := d.Get(ctx, change.Key)
				return isDelete(change) && !exists
			})
			return d.Apply(ctx, changes, bookmark)
		}}),
		found: []string{"Durable/keeps a tombstone of what was not there"},
	}, {
		fault:   "a bookmark is written before the changes",
		durable: losing(durable{ahead: new(string)}),
		opts:    losesLast(reopening(1)),
		found:   []string{"Durable/finds a whole state again after a crash"},
	}, {
		fault:   "the last write is lost in a crash",
		durable: losing(durable{}),
		opts:    reopening(1),
		found:   []string{"Durable/finds a whole state again after a crash"},
	}, {
		fault: "changes are applied one by one",
		durable: lasting(durable{apply: func(d *informertest.Durable, ctx context.Context, changes []informer.Change, bookmark string) error {
			for _, change := range changes {
				if err := ctx.Err(); err != nil {
					return err
				}
				rv, _ := d.Resume(context.WithoutCancel(ctx))
				if err := d.Apply(context.WithoutCancel(ctx), []informer.Change{change}, rv); err != nil {
					return err
				}
			}
			return d.Apply(context.WithoutCancel(ctx), nil, bookmark)
		}}),
		found: []string{"Durable/applies all or nothing if the ctx ends"},
	}, {
		fault: "what is there cannot be added",
		durable: lasting(durable{apply: func(d *informertest.Durable, ctx context.Context, changes []informer.Change, bookmark string) error {
			for _, change := range changes {
				if _, exists, _ := d.Get(ctx, change.Key); exists && !change.Delete {
					return errors.New("exists")
				}
			}
			return d.Apply(ctx, changes, bookmark)
		}}),
		found: []string{"Durable/stores what is there already", "Durable/applies the same again"},
	}, {
		fault: "deletes come last",
		durable: lasting(durable{apply: func(d *informertest.Durable, ctx context.Context, changes []informer.Change, bookmark string) error {
			deletes := slices.DeleteFunc(slices.Clone(changes), func(change informer.Change) bool { return !change.Delete })
			return d.Apply(ctx, append(slices.DeleteFunc(slices.Clone(changes), isDelete), deletes...), bookmark)
		}}),
		found: []string{"Durable/deletes and adds one key in one step"},
	}, {
		fault: "only the last change of a key counts",
		durable: lasting(durable{apply: func(d *informertest.Durable, ctx context.Context, changes []informer.Change, bookmark string) error {
			last := map[string]int{}
			for i, change := range changes {
				last[change.Key] = i
			}
			var some []informer.Change
			for i, change := range changes {
				if last[change.Key] == i {
					some = append(some, change)
				}
			}
			return d.Apply(ctx, some, bookmark)
		}}),
		found: []string{"Durable/deletes and adds one key in one step"},
	}, {
		fault: "a bookmark without changes is passed over",
		durable: lasting(durable{apply: func(d *informertest.Durable, ctx context.Context, changes []informer.Change, bookmark string) error {
			if len(changes) == 0 {
				return nil
			}
			return d.Apply(ctx, changes, bookmark)
		}}),
		found: []string{"Durable/sets a bookmark without changes"},
	}, {
		fault: "the bookmark never goes away",
		durable: lasting(durable{apply: func(d *informertest.Durable, ctx context.Context, changes []informer.Change, bookmark string) error {
			if bookmark == "" {
				bookmark, _ = d.Resume(ctx)
			}
			return d.Apply(ctx, changes, bookmark)
		}}),
		found: []string{"Durable/sets a bookmark without changes"},
	}, {
		fault: "the bookmark does not last",
		durable: lasting(durable{reopened: func(d *informertest.Durable) {
			_ = d.Apply(context.Background(), nil, "")
		}}),
		found: []string{"Durable/finds everything again"},
	}, {
		fault: "tombstones do not last",
		durable: lasting(durable{reopened: func(d *informertest.Durable) {
			all, _ := d.Tombstones(context.Background())
			for _, e := range all {
				_ = d.Forget(context.Background(), map[string][]types.UID{e.Key: {e.Object.GetUID()}})
			}
		}}),
		found: []string{"Durable/finds everything again"},
	},
}
