package valkey

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/customcacheinformer/informer/store"
	"github.com/customcacheinformer/informer/store/codec"
)

// format is the version of the keys and of their contents. It must be increased when they
// change.
const format = 1

// label describes what is in a store. Its hash is a part of the keys, so that two stores
// never share a key.
type label struct {
	Format   int
	Type     string // of the objects
	Fields   string // fingerprint of the type
	Encoding string
	Identity store.Identity
}

// place is where the server has a store.
type place struct {
	prefix string
	keys   []string // in the order in which the scripts know them
	log    string   // one of the keys
	label  string
}

func newPlace(c codec.Codec, identity store.Identity) (place, error) {
	if err := identity.Validate(c.Type()); err != nil {
		return place{}, err
	}
	text, err := json.Marshal(label{
		Format: format, Type: c.TypeName(), Fields: c.Fingerprint(), Encoding: c.Encoding(), Identity: identity,
	})
	if err != nil {
		return place{}, err
	}
	hash := sha256.Sum256(text)
	// The braces make a cluster keep all keys of a store on one server, as scripts need it.
	p := place{prefix: "informer:{" + hex.EncodeToString(hash[:16]) + "}:", label: string(text)}
	for _, name := range []string{"about", "objects", "keys", "tombstones", "log"} {
		p.keys = append(p.keys, p.prefix+name)
	}
	p.log = p.keys[len(p.keys)-1]
	return p, nil
}
