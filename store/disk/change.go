package disk

import (
	"errors"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/types"

	"github.com/customcacheinformer/informer"
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
	made := change{key: []byte(from.Key)}
	payload, err := c.Encode(from.Object)
	if err == nil {
		// An object that cannot be decoded again would be an error at every start from now on.
		_, err = c.Decode(payload)
	}
	if !isNil(from.Object) {
		made.uid = from.Object.GetUID()
	}
	if err == nil {
		err = checkSizes(made.key, made.uid, payload)
	}
	if err != nil {
		return made, fmt.Errorf("%w: %w", err, informer.ErrPermanent)
	}
	if from.Delete {
		made.tombstone = payload
	} else {
		made.obj, made.payload = from.Object, payload
	}
	return made, nil
}

func isNil(obj any) bool {
	v := reflect.ValueOf(obj)
	return obj == nil || v.Kind() == reflect.Pointer && v.IsNil()
}

func checkSizes(key []byte, uid types.UID, payload []byte) error {
	switch {
	case len(key) == 0:
		return errors.New("it has no key")
	case len(key) > maxKey:
		return fmt.Errorf("its key has %d bytes, more than %d", len(key), maxKey)
	case len(uid) > maxUID:
		return fmt.Errorf("its UID has %d bytes, more than %d", len(uid), maxUID)
	case len(payload) > maxRecord:
		return fmt.Errorf("it takes %d bytes, more than %d", len(payload), maxRecord)
	}
	return nil
}

// decode returns the object of a record. Its error has the object's key.
func (c objectCodec) decode(key, payload []byte) (informer.AnyObject, error) {
	obj, err := c.Decode(payload)
	if err != nil {
		return nil, damage("the record of %q cannot be decoded: %w", key, err)
	}
	return obj.(informer.AnyObject), nil // the example is one
}
