// Package codec encodes Kubernetes objects for a store that is not in memory. Package store/disk uses
// it, and so can a store of your own.
//
//	c, err := codec.New(&corev1.Pod{})
//	…
//	encoded, err := c.Encode(pod)
//	…
//	obj, err := c.Decode(encoded)
//
// A decoded object means the same to the API server as the encoded one, but may differ from it. An
// empty map or slice may come back as nil, and a quantity in its canonical form. A store should keep
// the results of [Codec.Encoding], [Codec.TypeName] and [Codec.Fingerprint] with the objects, and should
// not read objects that were stored with other results.
package codec

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// encoding is the format of an encoded object. Its number is the first byte of the encoded object.
type encoding byte

const (
	// asProtobuf is for the types of Kubernetes itself: it takes a fifth of the time of JSON.
	asProtobuf encoding = 1 + iota
	// asJSON is for all other types. Every type has a JSON form, because the API server sends
	// it. CBOR takes a third of the time, but does not keep a RawExtension: it would come back
	// as CBOR.
	asJSON
	// asCBOR is for unstructured objects: JSON would turn the number 1.0 into an integer.
	asCBOR
)

var encodingNames = map[encoding]string{asProtobuf: "protobuf", asJSON: "JSON", asCBOR: "CBOR"}

func (e encoding) String() string { return encodingNames[e] }

type protobuf interface {
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}

// Codec encodes and decodes the objects of one type. [New] makes one. Its methods do not block, and may
// be called from any goroutine. It may be copied.
type Codec struct {
	of       reflect.Type // a pointer type
	encoding encoding
}

// New returns the Codec for the type of example, which is a pointer to a struct, such as
// &corev1.Pod{} or &unstructured.Unstructured{}. It returns an error if example is nil or not a pointer.
// The types of Kubernetes itself are encoded as protobuf, unstructured objects as CBOR, and all other
// types as JSON.
func New(example runtime.Object) (Codec, error) {
	t := reflect.TypeOf(example)
	if t == nil || t.Kind() != reflect.Pointer {
		return Codec{}, fmt.Errorf("the example is a %T, want a pointer to an object", example)
	}
	c := Codec{of: t, encoding: asJSON}
	if t == reflect.TypeFor[*unstructured.Unstructured]() {
		c.encoding = asCBOR
	} else if _, ok := example.(protobuf); ok && strings.HasPrefix(t.Elem().PkgPath(), "k8s.io/") {
		// Only for these packages: a user's type that embeds only ObjectMeta has the Marshal
		// of ObjectMeta, which would leave out the other fields.
		c.encoding = asProtobuf
	}
	return c, nil
}

// Type returns the type of the objects, a pointer type.
func (c Codec) Type() reflect.Type { return c.of }

// TypeName returns the name of the type of the objects, with its import path and without the pointer,
// such as "k8s.io/api/core/v1.Pod".
func (c Codec) TypeName() string { return c.of.Elem().PkgPath() + "." + c.of.Elem().Name() }

// Encoding returns the name of the encoding: "protobuf", "JSON" or "CBOR".
func (c Codec) Encoding() string { return c.encoding.String() }

// Fingerprint returns a text that changes when the type does. It covers the names, tags and types of
// all fields, and which types have encoding methods of their own, such as MarshalJSON. Without it, a
// program with a new field would find that field empty in every object that an older program has
// stored.
func (c Codec) Fingerprint() string { return fingerprint(c.of.Elem()) }

// Encode returns obj in encoded form. It returns an error if obj is nil, of another type, or cannot
// be encoded.
func (c Codec) Encode(obj any) ([]byte, error) {
	object, ok := obj.(runtime.Object)
	if !ok || reflect.TypeOf(obj) != c.of || reflect.ValueOf(obj).IsNil() {
		return nil, fmt.Errorf("it is a %T, want a %v that is not nil", obj, c.of)
	}
	to := []byte{byte(c.encoding)}
	switch c.encoding {
	case asProtobuf:
		// The generated code leaves apiVersion and kind out.
		version, kind := object.GetObjectKind().GroupVersionKind().ToAPIVersionAndKind()
		to = appendText(appendText(to, version), kind)
		body, err := obj.(protobuf).Marshal()
		return append(to, body...), err
	case asCBOR:
		content := obj.(*unstructured.Unstructured).Object
		if deeper(content, maxNested) {
			return nil, fmt.Errorf("its fields are nested more than %d deep", maxNested)
		}
		body, err := direct.Marshal(content)
		return append(to, body...), err
	default:
		buffer := bytes.NewBuffer(to)
		encoder := json.NewEncoder(buffer)
		encoder.SetEscapeHTML(false) // escaping would change the bytes of a RawExtension
		err := encoder.Encode(obj)
		return buffer.Bytes(), err
	}
}

// maxNested is how deep the decoders of CBOR and JSON allow values to nest. The CBOR encoder has no
// limit: it would recurse until the stack is full, which ends the process.
const maxNested = 10_000

// deeper reports whether content has more than levels levels of maps and slices.
func deeper(content any, levels int) bool {
	switch content := content.(type) {
	case map[string]any:
		for _, field := range content {
			if levels == 0 || deeper(field, levels-1) {
				return true
			}
		}
	case []any:
		for _, item := range content {
			if levels == 0 || deeper(item, levels-1) {
				return true
			}
		}
	}
	return false
}

// Decode returns a new object, which shares no memory with encoded. It returns an error if encoded
// cannot be decoded. An encoded object of another type may be decoded without an error, so compare
// [Codec.TypeName] and [Codec.Fingerprint] first.
func (c Codec) Decode(encoded []byte) (runtime.Object, error) {
	if len(encoded) == 0 {
		return nil, errors.New("there is no object")
	}
	if encoding(encoded[0]) != c.encoding {
		return nil, fmt.Errorf("it is encoded as number %d, want %s", encoded[0], c.encoding)
	}
	body, obj := encoded[1:], reflect.New(c.of.Elem()).Interface().(runtime.Object)
	switch c.encoding {
	case asProtobuf:
		version, body, ok := cutText(body)
		kind, body, ok2 := cutText(body)
		if !ok || !ok2 {
			return nil, errors.New("the encoding ends before the object")
		}
		obj.GetObjectKind().SetGroupVersionKind(schema.FromAPIVersionAndKind(version, kind))
		return obj, obj.(protobuf).Unmarshal(body)
	case asCBOR:
		return obj, direct.Unmarshal(body, &obj.(*unstructured.Unstructured).Object)
	default:
		return obj, utiljson.Unmarshal(body, obj)
	}
}

func appendText(to []byte, text string) []byte {
	return append(binary.AppendUvarint(to, uint64(len(text))), text...)
}

// cutText returns the text that appendText has written, and the rest. ok is false if from is too
// short.
func cutText(from []byte) (text string, rest []byte, ok bool) {
	n, size := binary.Uvarint(from)
	if size <= 0 || n > uint64(len(from)-size) {
		return "", nil, false
	}
	return string(from[size : size+int(n)]), from[size+int(n):], true
}
