package valkey

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/valkey-io/valkey-go"
	"k8s.io/apimachinery/pkg/types"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/store/internal/stored"
)

// maxBytes limits one write, because the server does nothing else during the write. If a write is
// refused for its size, an informer applies it in two halves.
const maxBytes = 32 << 20

type change struct {
	key     string
	uid     types.UID
	version uint64 // of the object; 0 if it is not a number
	payload string // the encoded object
	remove  bool   // remove the object
	bury    bool   // keep the payload as a tombstone
}

// batch is what one write does.
type batch struct {
	changes  []change
	forget   []string
	keeps    bool // the bookmark and the log stay as they are
	bookmark string
}

// changeOf converts a change of the informer. All of its errors wrap informer.ErrPermanent.
func (s *Store) changeOf(from informer.Change) (change, error) {
	payload, err := stored.Encode(s.codec, from)
	if err != nil {
		return change{}, err
	}
	return change{
		key: from.Key, uid: from.Object.GetUID(), version: parseVersion(from.Object.GetResourceVersion()),
		payload: string(payload), remove: from.Delete, bury: from.Delete && !from.NoTombstone,
	}, nil
}

// tombstone returns the name of a tombstone. It is different for each key and UID.
func tombstone(key string, uid types.UID) string {
	return strconv.Itoa(len(key)) + ":" + key + string(uid)
}

func keyOf(name string) string {
	length, rest, _ := strings.Cut(name, ":")
	n, err := strconv.Atoi(length)
	if err != nil || n < 0 || n > len(rest) {
		return name // no tombstone has such a name
	}
	return rest[:n]
}

// write makes all changes of a batch or none.
func (s *Store) write(ctx context.Context, b batch) error {
	select {
	case s.writer <- struct{}{}:
		defer func() { <-s.writer }()
	case <-ctx.Done():
		return ctx.Err()
	}
	for {
		if err := errors.Join(ctx.Err(), s.Err()); err != nil {
			return err
		}
		next, args := s.plan(b)
		reply, err := s.send(ctx, args)
		if err == nil {
			_, err = reply.ToString()
		}
		if err == nil {
			s.at, s.strays = next, map[string]position{}
			s.written.Store(next.written)
			return nil
		}
		if call, other := otherCall(err); other {
			// An earlier call, whose outcome was not known, had an effect.
			at, ours := s.strays[call]
			if !ours {
				return s.judge(fmt.Errorf("%w: the server has had a write of another process", ErrLost))
			}
			s.at, s.strays = at, map[string]position{}
			continue
		}
		if _, refused := valkey.IsValkeyErr(err); !refused {
			s.strays[next.call] = next
		}
		return s.judge(err)
	}
}

// grace is how long a write waits for its answer after its ctx is done. Without it, the outcome of a
// write under way would almost never be known.
const grace = time.Second

func (s *Store) send(ctx context.Context, args []string) (valkey.ValkeyMessage, error) {
	late, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		select {
		case <-time.After(grace):
			cancel()
		case <-late.Done():
		}
	})
	defer func() {
		if cancel(); !stop() {
			<-ended
		}
	}()
	return run(late, s.client, s.place, applyScript, args...)
}

// otherCall returns the last write that the server has, if err means that it is not the expected one.
func otherCall(err error) (call string, other bool) {
	reply, ok := valkey.IsValkeyErr(err)
	if !ok {
		return "", false
	}
	return strings.CutPrefix(reply.Error(), otherCode)
}

// plan returns the arguments of the script that makes the changes of a batch, and the position after
// them. They depend only on the batch and the present position, so that a repeated call is the same
// call.
func (s *Store) plan(b batch) (next position, args []string) {
	next = s.at
	next.written++
	var changes, ids []string
	if !b.keeps {
		next.bookmark = b.bookmark
		var ok bool
		if ids, ok = next.extend(b); !ok {
			ids = make([]string, len(b.changes))
			changes = next.restart(b, s.session)
		}
	}
	for i, c := range b.changes {
		switch {
		case c.bury:
			changes = append(changes, "bury", c.key, c.payload, ids[i], tombstone(c.key, c.uid))
		case c.remove:
			changes = append(changes, "remove", c.key, c.payload, ids[i])
		default:
			changes = append(changes, "put", c.key, c.payload, ids[i])
		}
	}
	for _, name := range b.forget {
		changes = append(changes, "forget", name)
	}
	fields := next.fields()
	written := strconv.FormatInt(s.at.written, 10)
	rest := append(append([]string{strconv.Itoa(s.opts.Log), strconv.Itoa(len(fields) / 2)}, fields...), changes...)
	next.call = s.callOf(written, rest)
	return next, append([]string{s.session, written, s.at.call, next.call}, rest...)
}

func (s *Store) callOf(written string, args []string) string {
	hash := sha256.New()
	for _, arg := range append([]string{s.session, written}, args...) {
		_ = binary.Write(hash, binary.BigEndian, uint64(len(arg))) // a hash takes everything
		_, _ = io.WriteString(hash, arg)
	}
	return hex.EncodeToString(hash.Sum(nil)[:16])
}

// extend returns the ids of the entries that a batch adds to the log, if the batch leads from one
// state of the source to a later one. Otherwise ok is false. During a list it is false, because
// objects come in the order of their keys.
func (p *position) extend(b batch) (ids []string, ok bool) {
	version, next := parseVersion(b.bookmark), *p
	if p.version == 0 || version < p.version {
		return nil, false
	}
	if next.last.version < p.version { // no entry may be before a version that a reader has
		next.last = id{version: p.version}
	}
	for _, c := range b.changes {
		switch {
		case c.remove:
			next.last.n++
		case c.version <= next.last.version || c.version > version:
			return nil, false
		default:
			next.last = id{version: c.version}
		}
		ids = append(ids, next.last.String())
	}
	next.version, next.highest = version, max(next.highest, version)
	*p = next
	return ids, true
}

// restart ends the log. If the objects are a state of the source after the batch, it begins another
// log.
func (p *position) restart(b batch, session string) (args []string) {
	if p.log != "" {
		args = []string{"restart"}
	}
	p.version = parseVersion(b.bookmark)
	p.log, p.first, p.last = "", 0, id{}
	if p.version == 0 {
		return args
	}
	name := session + "." + strconv.FormatInt(p.written, 10)
	if p.version < p.highest {
		p.epoch, p.highest = name, 0 // the source was restored from a backup
	}
	p.log, p.first, p.last, p.highest = name, p.version, id{version: p.version}, max(p.highest, p.version)
	return args
}
