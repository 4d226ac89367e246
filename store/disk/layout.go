package disk

import (
	"encoding/binary"
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/types"

	"github.com/customcacheinformer/informer/store"
	"github.com/customcacheinformer/informer/store/codec"
	"github.com/customcacheinformer/informer/store/internal/stored"
)

// fileMode is the mode of the file, and of the files next to it.
const fileMode = 0o600

// maxFile is the largest size of a file in bytes, or 0 for no limit. On 32 bit, bbolt does
// not notice when a size of 2 GiB or more overflows. Above 1 GiB it maps 2 GiB, for which a
// process seldom has room. It is a variable for the tests.
var maxFile = func() int {
	if strconv.IntSize == 32 {
		return 1 << 30
	}
	return 0
}()

func mark(path string) string { return path + ".damaged" }

// format is the version of the buckets and records. It must be increased when they change.
const format = 1

// The buckets. The one about the file has the first name, so that a check reads it before all
// the rest.
const (
	aboutBucket      = "about"
	indexesBucket    = "indexes"
	objectsBucket    = "objects"
	tombstonesBucket = "tombstones"
)

var buckets = []string{aboutBucket, indexesBucket, objectsBucket, tombstonesBucket}

// The keys in aboutBucket.
const (
	bookmarkKey = "bookmark"
	labelKey    = "label"
	sessionKey  = "session" // the machine's boot ID, while some writes may not be synced
)

// The limits of a record. bbolt takes keys of 32 KiB; the keys of index entries and of
// tombstones are longer than the object's.
const (
	maxKey    = stored.MaxKey
	maxRecord = stored.MaxObject
)

// filled is how full pages become when keys arrive in order, as in a list. The rest is room
// for objects that grow. Otherwise bbolt leaves half of a page empty when it splits the page.
const filled = 0.95

// tombstoneKey returns the key of a tombstone. It is different for each key and UID.
func tombstoneKey(key []byte, uid types.UID) []byte {
	return append(appendBytes(make([]byte, 0, binary.MaxVarintLen64+len(key)+len(uid)), key), uid...)
}

func buried(tombstoneKey []byte) []byte {
	key, _, _ := cutBytes(tombstoneKey)
	return key
}

// label is the identity that is stored in the file.
type label struct {
	Format   int
	Type     string // type of the objects
	Fields   string // fingerprint of the type
	Encoding string
	Identity store.Identity
}

func newLabel(of codec.Codec, identity store.Identity) label {
	return label{format, of.TypeName(), of.Fingerprint(), of.Encoding(), identity}
}

// difference returns an error that names the first field in which other differs from l.
func (l label) difference(other label) error {
	for _, field := range [][3]string{
		{"format", fmt.Sprint(l.Format), fmt.Sprint(other.Format)},
		{"type of the objects", l.Type, other.Type},
		{"fields of the objects", l.Fields, other.Fields},
		{"encoding", l.Encoding, other.Encoding},
		{"Identity.Cluster", l.Identity.Cluster, other.Identity.Cluster},
		{"Identity.Resource", l.Identity.Resource, other.Identity.Resource},
		{"Identity.Namespace", l.Identity.Namespace, other.Identity.Namespace},
		{"Identity.Selector", l.Identity.Selector, other.Identity.Selector},
		{"Identity.Version", l.Identity.Version, other.Identity.Version},
	} {
		if want, found := field[1], field[2]; found != want {
			return fmt.Errorf("its %s is %q, want %q", field[0], found, want)
		}
	}
	return nil
}
