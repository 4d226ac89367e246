package disk

import (
	"bytes"
	"errors"
	"io"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/customcacheinformer/informer/store/codec"
)

// Names that the tests of package disk_test use.
const (
	PageSize = pageSize
	MaxKey   = maxKey
)

// Put returns the record of a payload under a key.
func Put(key, payload []byte) []byte { return seal(key, payload) }

// Remove is remove.
var Remove = remove

// Check checks a file, whatever identity it has.
func Check(file []byte) error { return check(bytes.NewReader(file), int64(len(file)), anything{}) }

// CheckRead is like Check, for any reader. It also reports whether reading has failed.
func CheckRead(file io.ReaderAt, size int64) (unread bool, err error) {
	err = check(file, size, anything{})
	var failed *readError
	return errors.As(err, &failed), err
}

// anything is a visitor that accepts everything.
type anything struct{}

func (anything) bucket([]string) error                 { return nil }
func (anything) record([]string, []byte, []byte) error { return nil }

// Encode returns a record of an object.
func Encode(key []byte, obj runtime.Object) ([]byte, error) {
	c, err := codec.New(obj)
	if err != nil {
		return nil, err
	}
	payload, err := c.Encode(obj)
	return seal(key, payload), err
}

// Decode is the inverse of Encode, for objects of the example's type.
func Decode(key, record []byte, example runtime.Object) (runtime.Object, error) {
	c, err := codec.New(example)
	if err != nil {
		return nil, err
	}
	payload, err := unseal(key, record)
	if err != nil {
		return nil, err
	}
	return c.Decode(payload)
}

// SetMaxFile changes the limit of the size of a file until restore is called.
func SetMaxFile(size int) (restore func()) {
	before := maxFile
	maxFile = size
	return func() { maxFile = before }
}
