package storetest_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/store/storetest"
)

// scanning is a Scanner that is no Durable.
type scanning struct {
	cache.Store
	scan func(s informer.Scanner, ctx context.Context, after string, limit int) ([]any, error)
}

func (s *scanning) Scan(ctx context.Context, after string, limit int) ([]any, error) {
	return s.scan(s.Store.(informer.Scanner), ctx, after, limit)
}

// scannedBy returns a function that makes a store which is correct except for its Scan.
func scannedBy(scan func(s informer.Scanner, ctx context.Context, after string, limit int) ([]any, error)) func() cache.Store {
	return func() cache.Store { return &scanning{informertest.NewDurable(), scan} }
}

func key(obj any) string {
	k, err := cache.MetaNamespaceKeyFunc(obj)
	if err != nil {
		panic(err)
	}
	return k
}

// noScanner has a Scan with another signature than a Scanner's.
type noScanner struct{ cache.Store }

func (noScanner) Scan(string) []any { return nil }

var brokenScanners = []broken{
	{
		fault: "Scan begins with the key after",
		make: scannedBy(func(s informer.Scanner, ctx context.Context, after string, limit int) ([]any, error) {
			objs, err := s.Scan(ctx, "", 1<<30)
			i := slices.IndexFunc(objs, func(obj any) bool { return key(obj) >= after })
			return objs[max(0, i):min(len(objs), max(0, i)+limit)], err
		}),
		found: []string{"Scanner/gives everything once and in order"},
	}, {
		fault: "Scan is not in order",
		make: scannedBy(func(s informer.Scanner, ctx context.Context, after string, limit int) ([]any, error) {
			objs, err := s.Scan(ctx, after, limit)
			slices.Reverse(objs)
			return objs, err
		}),
		found: []string{"Scanner/gives everything once and in order"},
	}, {
		fault: "Scan is in the order of namespace and name",
		make: scannedBy(func(s informer.Scanner, ctx context.Context, after string, limit int) ([]any, error) {
			order := func(key string) string { return strings.ReplaceAll(key, "/", "\x00") }
			objs, err := s.Scan(ctx, "", 1<<30)
			slices.SortFunc(objs, func(a, b any) int { return strings.Compare(order(key(a)), order(key(b))) })
			objs = slices.DeleteFunc(objs, func(obj any) bool { return order(key(obj)) <= order(after) })
			return objs[:min(len(objs), limit)], err
		}),
		found: []string{"Scanner/gives everything once and in order"},
	}, {
		fault: "Scan drops the last page",
		make: scannedBy(func(s informer.Scanner, ctx context.Context, after string, limit int) ([]any, error) {
			objs, err := s.Scan(ctx, after, limit)
			if len(objs) < limit {
				return nil, err
			}
			return objs, err
		}),
		found: []string{"Scanner/gives everything once and in order"},
	}, {
		fault: "Scan has no limit",
		make: scannedBy(func(s informer.Scanner, ctx context.Context, after string, _ int) ([]any, error) {
			return s.Scan(ctx, after, 1<<30)
		}),
		found: []string{"Scanner/gives everything once and in order"},
	}, {
		fault: "Scan must find the key after",
		make: scannedBy(func(s informer.Scanner, ctx context.Context, after string, limit int) ([]any, error) {
			if _, exists, _ := s.(cache.Store).GetByKey(after); after != "" && !exists {
				return nil, nil
			}
			return s.Scan(ctx, after, limit)
		}),
		found: []string{"Scanner/gives what comes after a key", "Scanner/misses and doubles nothing if it is written between pages"},
	}, {
		fault: "Scan of nothing is an error",
		make: scannedBy(func(s informer.Scanner, ctx context.Context, after string, limit int) ([]any, error) {
			objs, err := s.Scan(ctx, after, limit)
			if len(objs) == 0 {
				err = errors.New("no more")
			}
			return objs, err
		}),
		found: []string{"Scanner/gives nothing of an empty store"},
	}, {
		fault: "Scan ends with its ctx and says nothing",
		make: scannedBy(func(s informer.Scanner, ctx context.Context, after string, limit int) ([]any, error) {
			all, err := s.Scan(context.WithoutCancel(ctx), after, limit)
			for i := range all {
				if ctx.Err() != nil {
					return all[:i], nil
				}
			}
			return all, err
		}),
		found: []string{"Scanner/does not take the end of a ctx for the end of the objects"},
	}, {
		fault: "Scan has other arguments",
		make:  func() cache.Store { return noScanner{cache.NewStore(cache.MetaNamespaceKeyFunc)} },
		found: []string{"Scanner"},
		says:  "it lacks Scan(context.Context, string, int) ([]interface {}, error)",
	},
}

// durable is a Durable that is correct except for the functions that are set.
type durable struct {
	*informertest.Durable
	apply      func(d *informertest.Durable, ctx context.Context, changes []cache.Transaction, bookmark string) error
	tombstones func(all []any) []any
	forget     func(d *informertest.Durable, key string, uids []types.UID) []types.UID
	write      func(d *informertest.Durable, typ cache.TransactionType, obj any) error
	bookmark   func(d *informertest.Durable, rv string)
	reopened   func(d *informertest.Durable)
	ahead      *string // if set, Apply writes this bookmark before the changes
}

func (d *durable) Apply(ctx context.Context, changes []cache.Transaction, bookmark string) error {
	if d.ahead != nil {
		*d.ahead = bookmark
	}
	if d.apply != nil {
		return d.apply(d.Durable, ctx, changes, bookmark)
	}
	return d.Durable.Apply(ctx, changes, bookmark)
}

func (d *durable) Resume(ctx context.Context) (string, error) {
	rv, err := d.Durable.Resume(ctx)
	if d.ahead != nil {
		rv = *d.ahead
	}
	return rv, err
}

func (d *durable) Tombstones(ctx context.Context) ([]any, error) {
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

func (d *durable) Update(obj any) error {
	if d.write != nil {
		return d.write(d.Durable, cache.TransactionTypeUpdate, obj)
	}
	return d.Durable.Update(obj)
}

func (d *durable) Delete(obj any) error {
	if d.write != nil {
		return d.write(d.Durable, cache.TransactionTypeDelete, obj)
	}
	return d.Durable.Delete(obj)
}

func (d *durable) Bookmark(rv string) {
	if d.bookmark != nil {
		d.bookmark(d.Durable, rv)
	}
}

// lasting returns a function that makes a Durable like d.
func lasting(d durable) func() cache.Store {
	return func() cache.Store {
		d := d
		d.Durable = informertest.NewDurable()
		if d.ahead != nil {
			d.ahead = new(string)
		}
		return &d
	}
}

// reopening returns options for the stores that lasting makes. A crash loses lost writes.
func reopening(lost int, more storetest.Options) storetest.Options {
	reopen := func(s cache.Store) cache.Store {
		d := *s.(*durable)
		d.Durable = d.Reopen()
		d.LoseOnCrash(lost)
		if d.reopened != nil {
			d.reopened(d.Durable)
		}
		return &d
	}
	more.Reopen = func(_ *testing.T, s cache.Store) cache.Store {
		s.(*durable).LoseOnCrash(0)
		return reopen(s)
	}
	more.Crash = func(_ *testing.T, s cache.Store) cache.Store {
		s.(*durable).LoseOnCrash(0) // all writes so far are flushed
		return reopen(s)
	}
	if lost > 0 {
		more.Crash = func(_ *testing.T, s cache.Store) cache.Store { return reopen(s) }
	}
	return more
}

// losing is like lasting, but a crash loses the last write.
func losing(d durable) func() cache.Store {
	return func() cache.Store {
		s := lasting(d)().(*durable)
		s.LoseOnCrash(1)
		return s
	}
}

// half has all methods of a Durable except Forget.
type half struct {
	cache.Store
	informer.Scanner
	resuming
}

// resuming has the methods of a Durable that half has.
type resuming interface {
	Resume(ctx context.Context) (string, error)
	Apply(ctx context.Context, changes []cache.Transaction, bookmark string) error
	Tombstones(ctx context.Context) ([]any, error)
}

func isDelete(change cache.Transaction) bool { return change.Type == cache.TransactionTypeDelete }

// cannotReopen is a fault of the options.
const cannotReopen = "nobody says how to reopen it"

var brokenDurables = []broken{
	{
		fault: "tombstones are told apart by key alone",
		make: lasting(durable{tombstones: func(all []any) []any {
			return slices.CompactFunc(slices.SortedFunc(slices.Values(all), func(a, b any) int { return strings.Compare(key(a), key(b)) }),
				func(a, b any) bool { return key(a) == key(b) })
		}}),
		found: []string{"Durable/tells tombstones apart by key and UID"},
	}, {
		fault: "there are no tombstones",
		make:  lasting(durable{tombstones: func([]any) []any { return nil }}),
		found: []string{"Durable/keeps what is deleted as a tombstone", "Durable/finds everything again"},
	}, {
		fault: "tombstones are forgotten by key alone",
		make: lasting(durable{forget: func(d *informertest.Durable, forgotten string, _ []types.UID) (uids []types.UID) {
			all, _ := d.Tombstones(context.Background())
			for _, obj := range all {
				if object, err := meta.Accessor(obj); err == nil && key(obj) == forgotten {
					uids = append(uids, object.GetUID())
				}
			}
			return uids
		}}),
		found: []string{"Durable/forgets tombstones by key and UID"},
	}, {
		fault: "only the first tombstone of a key is forgotten",
		make: lasting(durable{forget: func(_ *informertest.Durable, _ string, uids []types.UID) []types.UID {
			return uids[:min(len(uids), 1)]
		}}),
		found: []string{"Durable/forgets tombstones by key and UID"},
	}, {
		fault: "what was not there is no tombstone",
		make: lasting(durable{apply: func(d *informertest.Durable, ctx context.Context, changes []cache.Transaction, bookmark string) error {
			changes = slices.DeleteFunc(slices.Clone(changes), func(change cache.Transaction) bool {
				_, exists, _ := d.Get(change.Object)
				return isDelete(change) && !exists
			})
			return d.Apply(ctx, changes, bookmark)
		}}),
		found: []string{"Durable/keeps a tombstone of what was not there"},
	}, {
		fault: "a bookmark is written before the changes",
		make:  losing(durable{ahead: new(string)}),
		opts:  reopening(1, storetest.Options{LosesLast: true}),
		found: []string{"Durable/finds a whole state again after a crash"},
	}, {
		fault: "the last write is lost in a crash",
		make:  losing(durable{}),
		opts:  reopening(1, storetest.Options{}),
		found: []string{"Durable/finds a whole state again after a crash"},
	}, {
		fault: "changes are applied one by one",
		make: lasting(durable{apply: func(d *informertest.Durable, ctx context.Context, changes []cache.Transaction, bookmark string) error {
			for _, change := range changes {
				if err := ctx.Err(); err != nil {
					return err
				}
				rv, _ := d.Resume(context.WithoutCancel(ctx))
				if err := d.Apply(context.WithoutCancel(ctx), []cache.Transaction{change}, rv); err != nil {
					return err
				}
			}
			return d.Apply(context.WithoutCancel(ctx), nil, bookmark)
		}}),
		found: []string{"Durable/applies all or nothing if the ctx ends"},
	}, {
		fault: "what is there cannot be added",
		make: lasting(durable{apply: func(d *informertest.Durable, ctx context.Context, changes []cache.Transaction, bookmark string) error {
			for _, change := range changes {
				if _, exists, _ := d.Get(change.Object); exists && change.Type == cache.TransactionTypeAdd {
					return errors.New("exists")
				}
			}
			return d.Apply(ctx, changes, bookmark)
		}}),
		found: []string{"Durable/adds what is there", "Durable/applies the same again"},
	}, {
		fault: "deletes come last",
		make: lasting(durable{apply: func(d *informertest.Durable, ctx context.Context, changes []cache.Transaction, bookmark string) error {
			sorted := slices.DeleteFunc(slices.Clone(changes), isDelete)
			sorted = append(sorted, slices.DeleteFunc(slices.Clone(changes), func(change cache.Transaction) bool { return !isDelete(change) })...)
			return d.Apply(ctx, sorted, bookmark)
		}}),
		found: []string{"Durable/deletes and adds one key in one step"},
	}, {
		fault: "only the last change of a key counts",
		make: lasting(durable{apply: func(d *informertest.Durable, ctx context.Context, changes []cache.Transaction, bookmark string) error {
			last := map[string]int{}
			for i, change := range changes {
				last[key(change.Object)] = i
			}
			var some []cache.Transaction
			for i, change := range changes {
				if last[key(change.Object)] == i {
					some = append(some, change)
				}
			}
			return d.Apply(ctx, some, bookmark)
		}}),
		found: []string{"Durable/deletes and adds one key in one step"},
	}, {
		fault: "a bookmark without changes is passed over",
		make: lasting(durable{apply: func(d *informertest.Durable, ctx context.Context, changes []cache.Transaction, bookmark string) error {
			if len(changes) == 0 {
				return nil
			}
			return d.Apply(ctx, changes, bookmark)
		}}),
		found: []string{"Durable/sets a bookmark without changes"},
	}, {
		fault: "the bookmark never goes away",
		make: lasting(durable{apply: func(d *informertest.Durable, ctx context.Context, changes []cache.Transaction, bookmark string) error {
			if bookmark == "" {
				bookmark, _ = d.Resume(ctx)
			}
			return d.Apply(ctx, changes, bookmark)
		}}),
		found: []string{"Durable/sets a bookmark without changes"},
	}, {
		fault: "Bookmark moves the bookmark",
		make: lasting(durable{bookmark: func(d *informertest.Durable, rv string) {
			_ = d.Apply(context.Background(), nil, rv)
		}}),
		found: []string{"Durable/removes the bookmark in all other writes"},
	}, {
		fault: "every write is an Apply",
		make: lasting(durable{write: func(d *informertest.Durable, typ cache.TransactionType, obj any) error {
			return d.Apply(context.Background(), []cache.Transaction{{Type: typ, Object: obj}}, obj.(informer.AnyObject).GetResourceVersion())
		}}),
		found: []string{"Durable/removes the bookmark in all other writes"},
	}, {
		fault: "the bookmark does not last",
		make: lasting(durable{reopened: func(d *informertest.Durable) {
			_ = d.Apply(context.Background(), nil, "")
		}}),
		found: []string{"Durable/finds everything again"},
	}, {
		fault: "tombstones do not last",
		make: lasting(durable{reopened: func(d *informertest.Durable) {
			all, _ := d.Tombstones(context.Background())
			for _, obj := range all {
				_ = d.Forget(context.Background(), map[string][]types.UID{key(obj): {obj.(informer.AnyObject).GetUID()}})
			}
		}}),
		found: []string{"Durable/finds everything again"},
	}, {
		fault: "Forget is missing",
		make: func() cache.Store {
			d := informertest.NewDurable()
			return &half{struct{ cache.Store }{d}, d, d}
		},
		found: []string{"Durable"},
		says:  "has a method Apply, Resume, Tombstones, but it is no informer.Durable, and an informer would silently not use it as one: it lacks Forget(context.Context, map[string][]types.UID) error",
	}, {
		fault: cannotReopen,
		make:  lasting(durable{}),
		found: []string{"Durable"},
		says:  "Options.Reopen is nil",
	},
}
