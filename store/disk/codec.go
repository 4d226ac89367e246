package disk

import (
	"bytes"
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

// encoding is the format of an encoded object. Its number is the first byte of a payload.
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

// protobuf has the methods that generated code gives a type.
type protobuf interface {
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}

// codec encodes the objects of one type.
type codec struct {
	of       reflect.Type // a pointer type
	encoding encoding
}

func newCodec(example runtime.Object) (codec, error) {
	t := reflect.TypeOf(example)
	if t == nil || t.Kind() != reflect.Pointer {
		return codec{}, fmt.Errorf("the example is a %T, want a pointer to an object", example)
	}
	c := codec{of: t, encoding: asJSON}
	if t == reflect.TypeFor[*unstructured.Unstructured]() {
		c.encoding = asCBOR
	} else if _, ok := example.(protobuf); ok && strings.HasPrefix(t.Elem().PkgPath(), "k8s.io/") {
		// Only for these packages: a user's type that embeds ObjectMeta alone has the Marshal
		// of ObjectMeta, which would leave out the other fields.
		c.encoding = asProtobuf
	}
	return c, nil
}

// encode returns the payload of an object.
func (c codec) encode(obj any) ([]byte, error) {
	object, ok := obj.(runtime.Object)
	if !ok || reflect.TypeOf(obj) != c.of || isNil(obj) {
		return nil, fmt.Errorf("it is a %T, want a %v that is not nil", obj, c.of)
	}
	to := []byte{byte(c.encoding)}
	switch c.encoding {
	case asProtobuf:
		// The generated code leaves apiVersion and kind out.
		version, kind := object.GetObjectKind().GroupVersionKind().ToAPIVersionAndKind()
		to = appendBytes(appendBytes(to, []byte(version)), []byte(kind))
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

// maxNested is the depth limit of the decoders of CBOR and JSON. The CBOR encoder has none: it
// would recurse until the stack is full, which ends the process.
const maxNested = 10_000

// deeper reports whether content has more than that many levels of maps and slices.
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

// decode returns a new object, which shares no memory with payload.
func (c codec) decode(payload []byte) (runtime.Object, error) {
	if len(payload) == 0 {
		return nil, errors.New("there is no object")
	}
	if encoding(payload[0]) != c.encoding {
		return nil, fmt.Errorf("it is encoded as number %d, want %s", payload[0], c.encoding)
	}
	body, obj := payload[1:], reflect.New(c.of.Elem()).Interface().(runtime.Object)
	switch c.encoding {
	case asProtobuf:
		version, body, ok := cutBytes(body)
		kind, body, ok2 := cutBytes(body)
		if !ok || !ok2 {
			return nil, errors.New("the payload ends before the object")
		}
		obj.GetObjectKind().SetGroupVersionKind(schema.FromAPIVersionAndKind(string(version), string(kind)))
		return obj, obj.(protobuf).Unmarshal(body)
	case asCBOR:
		return obj, direct.Unmarshal(body, &obj.(*unstructured.Unstructured).Object)
	default:
		return obj, utiljson.Unmarshal(body, obj)
	}
}

// decodeRecord is like decode, for the record of an object. Its error has the object's key.
func (c codec) decodeRecord(key, payload []byte) (runtime.Object, error) {
	obj, err := c.decode(payload)
	if err != nil {
		return nil, damage("the record of %q cannot be decoded: %w", key, err)
	}
	return obj, nil
}
