package disk

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/stored"
	"github.com/customcacheinformer/informer/store/codec"
)

// change is a change of one object, encoded.
type change struct {
	key       []byte
	obj       informer.AnyObject // nil to remove the object
	payload   []byte             // encoded obj
	tombstone []byte             // encoded tombstone, nil for none
	uid       types.UID
}

// objectCodec makes changes of objects, and objects of records.
type objectCodec struct{ codec.Codec }

// of returns a change of the informer as one of the file. All of its errors are permanent.
func (c objectCodec) of(from informer.Change) (change, error) {
	payload, err := stored.Encode(c.Codec, from)
	if err != nil {
		return change{}, err
	}
	made := change{key: []byte(from.Key), uid: from.Object.GetUID()}
	if from.Delete {
		made.tombstone = payload
	} else {
		made.obj, made.payload = from.Object, payload
	}
	return made, nil
}

// decode returns the object of a record. Its error has the object's key.
func (c objectCodec) decode(key, payload []byte) (informer.AnyObject, error) {
	obj, err := c.Decode(payload)
	if err != nil {
		return nil, damage("the record of %q cannot be decoded: %w", key, err)
	}
	return obj.(informer.AnyObject), nil // the example is one
}
