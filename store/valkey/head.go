package valkey

import (
	"context"
	"fmt"
	"math"
	"strconv"

	"github.com/valkey-io/valkey-go"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// pageEntries is how many entries of the log one request may return.
const pageEntries = 200

// head is what one request of a reader returns about a store.
type head struct {
	epoch, log     string
	version, first uint64
	last           id // of the last entry; only with a page
	oldest         id // of the oldest entry that the log still has
	trimmed        bool
	session        string // of the Store that writes
	// lowest is the lowest version at which a Store has taken over after the session that the reader has
	// named, or none.
	lowest  uint64
	entries []entry
}

// none is the value of head.lowest if no Store has taken over.
const none = math.MaxUint64

type entry struct {
	id     id
	kind   string // add, change or delete
	key    string
	object string // encoded
}

// look reads up to limit entries of a log, beginning with the first one after the id in after. session
// is the session that wrote when the caller looked last, or "".
func (s *Source) look(ctx context.Context, log, after string, limit int, session string) (h head, err error) {
	reply, err := read(ctx, s.client, s.place, followScript, log, after, strconv.Itoa(limit), session)
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
	if h.session, err = parts[6].ToString(); err != nil {
		return head{}, err
	}
	lowest, err := parts[7].ToString()
	if err != nil {
		return head{}, err
	}
	if h.lowest = none; lowest != "" {
		h.lowest = parseVersion(lowest)
	}
	entries, err := parts[8].AsXRange()
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

// ready returns an error if the objects are not a state of the source.
func (h head) ready() error {
	if h.version == 0 {
		return errNotReady
	}
	return nil
}

// wentBack reports whether the server has lost changes up to version, which the caller has got. The Store
// that has taken over may have written other changes with the same ids. So the caller must list again.
func (h head) wentBack(version uint64) bool { return h.lowest < version }

// gone reports whether the log lacks an entry whose id is greater than after.
func (h head) gone(after id) bool { return h.trimmed && h.oldest.after(after) }

// holds returns nil if a watch can begin at version, and otherwise an error.
func (h head) holds(version uint64) error {
	switch {
	case h.version == 0:
		return errNotReady
	case version < h.first || version > h.version || h.gone(id{version: version}):
		return expired(fmt.Sprintf("the log of the store does not have all changes after version %d", version))
	case h.wentBack(version):
		return expired("the server had lost changes, and has got them again")
	}
	return nil
}

func expired(message string) *apierrors.StatusError {
	return apierrors.NewResourceExpired("valkey: " + message)
}
