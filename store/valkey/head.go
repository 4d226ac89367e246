package valkey

import (
	"context"
	"fmt"
	"strconv"

	"github.com/valkey-io/valkey-go"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// pageEntries is how many entries of the log one request returns at most.
const pageEntries = 200

// head is what a reader learns of a store.
type head struct {
	epoch, log     string
	version, first uint64
	last           id // of the last entry; only with a page
	oldest         id // of the oldest entry that the log still has
	trimmed        bool
	entries        []entry
}

// entry is one of the log.
type entry struct {
	id     id
	kind   string // add, change or delete
	key    string
	object string // encoded
}

// look reads entries of a log after one.
func (s *Source) look(ctx context.Context, log, after string, limit int) (h head, err error) {
	reply, err := read(ctx, s.client, s.place, followScript, log, after, strconv.Itoa(limit))
	if err != nil {
		return head{}, err
	}
	parts, err := reply.ToArray()
	if err != nil {
		return head{}, err
	}
	var texts [5]string
	for i := range texts {
		if texts[i], err = parts[i].ToString(); err != nil {
			return head{}, err
		}
	}
	h = head{epoch: texts[0], log: texts[1], version: parseVersion(texts[2]), first: parseVersion(texts[3])}
	if h.oldest, err = parseID(texts[4]); err != nil {
		return head{}, err
	}
	if h.trimmed, err = parts[5].AsBool(); err != nil {
		return head{}, err
	}
	entries, err := parts[6].AsXRange()
	if err != nil && !valkey.IsValkeyNil(err) {
		return head{}, err
	}
	for _, x := range entries {
		e := entry{kind: x.FieldValues["t"], key: x.FieldValues["k"], object: x.FieldValues["o"]}
		if e.id, err = parseID(x.ID); err != nil {
			return head{}, err
		}
		h.entries = append(h.entries, e)
	}
	return h, nil
}

// ready returns an error if the objects are no state of the source.
func (h head) ready() error {
	if h.version == 0 {
		return errNotReady
	}
	return nil
}

// gone reports whether the log lacks an entry that came after one.
func (h head) gone(after id) bool { return h.trimmed && h.oldest.after(after) }

// holds returns an error unless a watch can begin at a version.
func (h head) holds(version uint64) error {
	switch {
	case h.version == 0:
		return errNotReady
	case version < h.first || version > h.version || h.gone(id{version: version}):
		return expired(fmt.Sprintf("the log of the store does not have all changes after version %d", version))
	}
	return nil
}

func expired(message string) *apierrors.StatusError {
	return apierrors.NewResourceExpired("valkey: " + message)
}
