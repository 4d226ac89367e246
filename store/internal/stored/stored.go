// Package stored encodes the changes of an informer for the stores that outlive the process.
package stored

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/store/codec"
)

// The limits of a change, in bytes.
const (
	MaxKey    = 16 << 10
	MaxUID    = 1 << 10
	MaxObject = 32 << 20
)

// Encode returns the encoded object of a change. All of its errors are permanent.
func Encode(c codec.Codec, change informer.Change) ([]byte, error) {
	payload, err := c.Encode(change.Object)
	if err == nil {
		// An object that cannot be decoded again would be an error at every start from now on.
		_, err = c.Decode(payload)
	}
	if err == nil { // then the object is not nil
		err = check(change.Key, change.Object.GetUID(), payload)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", err, informer.ErrPermanent)
	}
	return payload, nil
}

func check(key string, uid types.UID, payload []byte) error {
	switch {
	case key == "":
		return errors.New("it has no key")
	case len(key) > MaxKey:
		return fmt.Errorf("its key has %d bytes, more than %d", len(key), MaxKey)
	case len(uid) > MaxUID:
		return fmt.Errorf("its UID has %d bytes, more than %d", len(uid), MaxUID)
	case len(payload) > MaxObject:
		return fmt.Errorf("it takes %d bytes, more than %d", len(payload), MaxObject)
	}
	return nil
}

// Verb names what a change does.
func Verb(c informer.Change) string {
	if c.Delete {
		return "delete"
	}
	return "put"
}
