package disk

import (
	"errors"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/store/codec"
)

// change is a change of one object, encoded.
type change struct {
	key       []byte
	obj       any    // nil to remove the object
	payload   []byte // encoded obj
	tombstone []byte // encoded tombstone, nil for none
	uid       types.UID
}

// objectCodec makes changes of objects, and objects of records.
type objectCodec struct{ codec.Codec }

// storing returns the change that stores an object.
func (c objectCodec) storing(obj any) (change, error) {
	key, _, payload, err := c.encode(obj)
	return change{key: key, obj: obj, payload: payload}, err
}

// burying returns the change that turns an object into a tombstone.
func (c objectCodec) burying(obj any) (change, error) {
	key, uid, payload, err := c.encode(obj)
	return change{key: key, tombstone: payload, uid: uid}, err
}

// removing returns the change that removes the object with the key of obj.
func removing(obj any) (change, error) {
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
	if err != nil {
		err = fmt.Errorf("%w: %w", err, informer.ErrPermanent)
	}
	return change{key: []byte(key)}, err
}

// encode returns the parts of an object that are stored. All of its errors are permanent. It
// returns the key, if there is one, also with an error.
func (c objectCodec) encode(obj any) (key []byte, uid types.UID, payload []byte, err error) {
	if payload, err = c.Encode(obj); err == nil {
		// An object that cannot be decoded again would be an error at every start from now on.
		_, err = c.Decode(payload)
	}
	if object, wrong := meta.Accessor(obj); wrong == nil && !isNil(obj) {
		key, uid = []byte(cache.MetaObjectToName(object).String()), object.GetUID()
		if err == nil {
			err = checkSizes(object.GetName(), key, uid, payload)
		}
	} else if err == nil {
		err = wrong
	}
	if err != nil {
		err = fmt.Errorf("%w: %w", err, informer.ErrPermanent)
	}
	return key, uid, payload, err
}

func isNil(obj any) bool {
	v := reflect.ValueOf(obj)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

func checkSizes(name string, key []byte, uid types.UID, payload []byte) error {
	switch {
	case name == "":
		return errors.New("it has no name")
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
func (c objectCodec) decode(key, payload []byte) (any, error) {
	obj, err := c.Decode(payload)
	if err != nil {
		return nil, damage("the record of %q cannot be decoded: %w", key, err)
	}
	return obj, nil
}
