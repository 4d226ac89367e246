package valkey

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/valkey-io/valkey-go"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/store/codec"
)

var _ informer.Durable = (*Store)(nil)

// Store keeps objects of one type on a Valkey or Redis server. It is an informer.Durable. [Open] makes one.
// It must not be copied. Its methods may be called from any goroutine. It has no goroutines of its own, and
// keeps no objects in memory: each call that returns objects decodes them again, so they belong to the
// caller.
//
// Methods with a ctx wait for the server. They give up a request that reads after 10 seconds. They give up a
// write when the client does, or within a second of the end of ctx. A write that can never succeed returns
// an error that wraps informer.ErrPermanent, and has no effect. That is so if the object is of another type,
// cannot be encoded or decoded again, or takes more than 32 MiB. The same holds for an empty key, a key
// longer than 16 KiB, and a UID longer than 1 KiB. ErrFenced and ErrLost end the Store: all later calls
// return the same error, see [Store.Run]. Other errors come from ctx, the client or the server, such as a
// full memory. Then the call may be repeated.
type Store struct {
	client valkey.Client
	place  place
	opts   Options
	codec  codec.Codec

	session string // every Store has another one
	alive   context.Context
	end     context.CancelCauseFunc

	writer  chan struct{} // has a token during a write
	written atomic.Int64  // number of the last write that was confirmed
	at      position      // after that write
	// strays has the later writes whose outcome is not known: the position after each, by its call.
	// At most one of them happens.
	strays map[string]position
}

// Open returns the Store of opts.Identity, and makes it the only one that can write. It takes over from a
// Store with the same token or a lower one, in this process or another. example is an object of the type to
// be stored, such as &corev1.Pod{} or &unstructured.Unstructured{}. The client belongs to the caller, who
// closes it when the Store is not used any more. It must send reads to the primary, as it does by default: a
// replica may be behind. The server must be Redis 7 or later, or Valkey.
//
// If the server does not have the store, Open begins an empty one, and reports nothing: the server may have
// been emptied. If the server has only some parts of the store, Open begins an empty one too, and reports a
// *MissingError to Options.ErrorHandler. Open blocks for two or three requests. When ctx ends, it returns
// within 10 seconds. If the connection fails, Open may return an error although the Store has taken over:
// call Open again. If the server knows a higher token, Open returns an error that wraps ErrFenced and
// explains what to do. It also returns an error if an argument cannot be used, or if the server may evict
// any key to make room: its maxmemory-policy then begins with allkeys-. Open cannot notice that policy if
// the server refuses CONFIG GET to this user.
func Open(ctx context.Context, client valkey.Client, example runtime.Object, opts Options) (*Store, error) {
	s, err := open(ctx, client, example, opts)
	if err != nil {
		return nil, fmt.Errorf("valkey: open: %w", err)
	}
	return s, nil
}

func open(ctx context.Context, client valkey.Client, example runtime.Object, opts Options) (*Store, error) {
	if client == nil {
		return nil, errors.New("the client is nil")
	}
	if err := opts.check(); err != nil {
		return nil, err
	}
	of, err := codec.New(example)
	if err != nil {
		return nil, err
	}
	if _, ok := example.(informer.AnyObject); !ok {
		return nil, fmt.Errorf("the example is a %T, which is not an API object", example)
	}
	p, err := newPlace(of, opts.Identity)
	if err != nil {
		return nil, fmt.Errorf("Options.%w", err)
	}
	s := &Store{
		client: client, place: p, opts: opts.withDefaults(), codec: of,
		session: rand.Text(), writer: make(chan struct{}, 1), strays: map[string]position{},
	}
	s.alive, s.end = context.WithCancelCause(context.Background())
	if err := s.checkPolicy(ctx); err != nil {
		return nil, err
	}
	return s, s.take(ctx)
}

// checkPolicy returns an error if the server may evict any key. Other policies evict only keys that expire,
// and the keys of a Store do not expire.
func (s *Store) checkPolicy(ctx context.Context) error {
	const name = "maxmemory-policy"
	config, err := do(ctx, s.client, s.client.B().ConfigGet().Parameter(name).Build()).AsStrMap()
	if _, refused := valkey.IsValkeyErr(err); refused {
		return nil // a server that keeps its configuration to itself
	}
	if err != nil {
		return err
	}
	if strings.HasPrefix(config[name], "allkeys-") {
		return fmt.Errorf("the server may evict any key (its %s is %s): set noeviction, or a policy that begins with volatile-", name, config[name])
	}
	return nil
}

func (s *Store) take(ctx context.Context) error {
	reply, err := run(ctx, s.client, s.place, takeScript,
		s.session, strconv.FormatInt(s.opts.Token, 10), s.opts.Writer, rand.Text(), s.place.label)
	if errors.Is(err, ErrFenced) {
		return fmt.Errorf("%w, and Options.Token is %d: if another process leads, it has to write; if not, Token is not set, or the Lease of "+
			"the election was deleted, edited or restored: delete the Lease, because LeaseToken returns a higher number for the next one, "+
			"or delete the keys %s* of the store, so that the informer lists", err, s.opts.Token, s.place.prefix)
	}
	if err != nil {
		return err
	}
	fields, err := reply.AsStrSlice()
	if err != nil {
		return err
	}
	if missing := fields[0]; missing != "" {
		s.opts.ErrorHandler(&MissingError{Store: s.place.prefix, Part: missing})
	}
	s.at, err = parsePosition(fields[1:])
	s.written.Store(s.at.written)
	return err
}

// ObjectType returns the type of the example that was given to [Open]. It does not block.
func (s *Store) ObjectType() reflect.Type { return s.codec.Type() }

// String returns the store's keys, writer and token, for the page of package debug. It does not block.
func (s *Store) String() string {
	return fmt.Sprintf("valkey %s* written by %s with token %d", s.place.prefix, s.opts.Writer, s.opts.Token)
}

// Run calls run, and blocks until run returns. run is the method Run of an informer over s, or of a group
// with such an informer. The ctx that run gets ends with ctx, or earlier if a method of s finds that s can
// no longer write. If s cannot write when Run is called, that ctx ends at once. Run returns the error of
// run. If s can no longer write, the error also wraps ErrFenced or ErrLost, even if run returns nil.
func (s *Store) Run(ctx context.Context, run func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(s.alive, cancel)
	defer stop()
	return errors.Join(run(ctx), s.Err())
}

// Err returns an error that wraps ErrFenced or ErrLost if a call has found that the Store can no longer
// write, and nil otherwise. It does not block, and does not ask the server.
func (s *Store) Err() error {
	if s.alive.Err() == nil {
		return nil
	}
	return context.Cause(s.alive)
}

// judge returns err. If err wraps ErrFenced or ErrLost, it also ends the Store.
func (s *Store) judge(err error) error {
	if errors.Is(err, ErrFenced) || errors.Is(err, ErrLost) {
		s.end(fmt.Errorf("valkey: %s: %w", s.place.prefix, err))
	}
	return err
}
