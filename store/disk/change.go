package disk

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/store/codec"
	"github.com/customcacheinformer/informer/store/internal/stored"
)

type change struct {
	key       []byte
	obj       informer.AnyObject // nil to remove the object
	payload   []byte             // encoded obj
	tombstone []byte             // encoded tombstone, nil for none
	uid       types.UID
}

type objectCodec struct{ codec.Codec }

func (c objectCodec) of(from informer.Change) (change, error) {
	payload, err := stored.Encode(c.Codec, from)
	if err != nil {
		return change{}, err
	}
	made := change{key: []byte(from.Key), uid: from.Object.GetUID()}
	switch {
	case !from.Delete:
		made.obj, made.payload = from.Object, payload
	case !from.NoTombstone:
		made.tombstone = payload
	}
	return made, nil
}

func (c objectCodec) decode(key, payload []byte) (informer.AnyObject, error) {
	obj, err := c.Decode(payload)
	if err != nil {
		return nil, damage("the record of %q cannot be decoded: %w", key, err)
	}
	return obj.(informer.AnyObject), nil // the example is one
}
