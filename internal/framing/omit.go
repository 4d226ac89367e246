package framing

import (
	"encoding/binary"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	structs "github.com/customcacheinformer/informer/internal/field"
)

// An Omission is the set of fields of objects that an informer leaves out. A nil Omission leaves nothing out.
type Omission struct {
	paths [][]string
	root  omitted
	known sync.Map // of the reflect.Type of structs, to the places of the paths that they have
}

// omitted is a field that is left out, or a field with inner fields that are left out.
type omitted struct {
	name   string
	number int // in protobuf, 0 if that is not known
	fields []*omitted
}

// needed are the fields that every informer reads.
var needed = []string{"apiVersion", "kind", "metadata", "metadata.name", "metadata.namespace", "metadata.uid", "metadata.resourceVersion"}

// NewOmission returns an Omission of the fields at these paths, such as "metadata.managedFields", or nil if
// there are none. It returns an error if a path cannot be used, or if objects of type t do not have the field.
// t is a pointer to a struct, or nil. If t is nil or unstructured, the fields are not checked.
func NewOmission(t reflect.Type, paths []string) (*Omission, error) {
	if len(paths) == 0 {
		return nil, nil
	}
	if t == reflect.TypeFor[*unstructured.Unstructured]() {
		t = nil
	}
	o := &Omission{}
	for _, path := range paths {
		names, err := structs.Parse(path)
		switch {
		case err != nil:
			return nil, err
		case slices.Contains(needed, strings.Join(names, ".")):
			return nil, fmt.Errorf("path %q cannot be left out: the informer needs it", path)
		}
		numbers := make([]int, len(names))
		if t != nil {
			if _, err := indexOf(t.Elem(), names, numbers); err != nil {
				return nil, fmt.Errorf("path %q: %w", path, err)
			}
		}
		o.paths = append(o.paths, names)
		o.root.add(names, numbers)
	}
	return o, nil
}

// indexOf returns the index of a field in a struct, one part for each step. It sets numbers to the protobuf
// number of each step.
func indexOf(t reflect.Type, names []string, numbers []int) (index [][]int, err error) {
	for n, name := range names {
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if t.Kind() != reflect.Struct {
			return nil, fmt.Errorf("%s is not a struct", strings.Join(names[:n], "."))
		}
		f, ok := structs.Of(t)[name]
		if !ok {
			return nil, fmt.Errorf("%v has no field %s", t, name)
		}
		// In protobuf, an embedded struct is a message of its own, in which the number would be that of another field.
		if tag := strings.Split(f.Tag.Get("protobuf"), ","); len(tag) > 1 && len(f.Index) == 1 {
			numbers[n], _ = strconv.Atoi(tag[1])
		}
		index, t = append(index, f.Index), f.Type
	}
	return index, nil
}

// add adds a path below f. A field that is left out as a whole has no fields.
func (f *omitted) add(names []string, numbers []int) {
	kid := f.kid(func(k *omitted) bool { return k.name == names[0] })
	switch {
	case kid == nil:
		kid = &omitted{name: names[0], number: numbers[0]}
		f.fields = append(f.fields, kid)
	case kid.fields == nil:
		return // all of it is left out
	}
	if len(names) == 1 {
		kid.fields = nil
		return
	}
	kid.add(names[1:], numbers[1:])
}

func (f *omitted) kid(is func(*omitted) bool) *omitted {
	if n := slices.IndexFunc(f.fields, is); n >= 0 {
		return f.fields[n]
	}
	return nil
}

// From removes the fields from obj, in place: it sets fields of structs to their zero values.
func (o *Omission) From(obj any) {
	if o == nil {
		return
	}
	if u, ok := obj.(*unstructured.Unstructured); ok {
		for _, path := range o.paths {
			unstructured.RemoveNestedField(u.Object, path...)
		}
		return
	}
	v := reflect.ValueOf(obj)
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct {
		return
	}
	for _, index := range o.indexes(v.Type().Elem()) {
		zero(v.Elem(), index)
	}
}

// indexes returns the indexes of those of the fields that a struct of type t has.
func (o *Omission) indexes(t reflect.Type) [][][]int {
	if known, ok := o.known.Load(t); ok {
		return known.([][][]int)
	}
	var all [][][]int
	for _, path := range o.paths {
		if index, err := indexOf(t, path, make([]int, len(path))); err == nil {
			all = append(all, index)
		}
	}
	o.known.Store(t, all)
	return all
}

func zero(v reflect.Value, index [][]int) {
	for _, step := range index {
		if v.Kind() == reflect.Pointer {
			if v.IsNil() {
				return
			}
			v = v.Elem()
		}
		var err error
		if v, err = v.FieldByIndexErr(step); err != nil {
			return // of an embedded pointer that is nil
		}
	}
	v.SetZero()
}

// scratch holds buffers for objects without their omitted fields.
var scratch = sync.Pool{New: func() any { return new([]byte) }}

// maxScratch is the size of the largest buffer that is kept.
const maxScratch = 1 << 20

// without calls decode with an encoded object without the omitted fields, in a buffer that decode must not
// keep. If it does not understand the object, it calls decode with all of raw: From removes the fields later.
func (o *Omission) without(raw []byte, cut func(f *omitted, dst, raw []byte) ([]byte, bool), decode func(raw []byte) error) error {
	if o == nil {
		return decode(raw)
	}
	buf := scratch.Get().(*[]byte)
	defer func() {
		if cap(*buf) <= maxScratch {
			scratch.Put(buf)
		}
	}()
	rest, ok := cut(&o.root, (*buf)[:0], raw)
	if *buf = rest; !ok {
		return decode(raw)
	}
	return decode(rest)
}

// cutJSON appends an object to dst, without the omitted fields. It returns false if it does not understand the
// object.
func cutJSON(f *omitted, dst, raw []byte) ([]byte, bool) {
	c := jsonCut{window: window{buf: raw, b: len(raw), err: io.EOF}, dst: dst, left: f.count()}
	if _, ok := c.object(f, c.space(0)); !ok {
		return c.dst, false
	}
	return append(c.dst, raw[c.copied:]...), true
}

// count returns how many fields below f are left out.
func (f *omitted) count() (n int) {
	for _, kid := range f.fields {
		n += max(1, kid.count())
	}
	return n
}

type jsonCut struct {
	window
	dst    []byte
	copied int // what dst has of the window
	left   int // how many fields are left to be found
}

// object cuts the fields of the object at offset i, and returns the offset of its end. It stops early once it
// has found all omitted fields.
func (c *jsonCut) object(f *omitted, i int) (end int, ok bool) {
	if c.at(i) != '{' {
		return i, false
	}
	first, comma := true, i
	for i = c.space(i + 1); c.at(i) == '"'; i = c.space(i + 1) {
		start := i
		colon, ok := c.value(i, maxItem)
		if !ok {
			return i, false
		}
		name := c.buf[i+1 : colon-1]
		if colon = c.space(colon); c.at(colon) != ':' {
			return i, false
		}
		v := c.space(colon + 1)
		kid := f.kid(func(k *omitted) bool { return k.name == string(name) })
		cut := kid != nil && kid.fields == nil
		if kid != nil && !cut && c.at(v) == '{' {
			i, ok = c.object(kid, v)
		} else {
			i, ok = c.value(v, maxItem)
		}
		if !ok {
			return i, false
		}
		more := c.space(i)
		if c.at(more) != ',' {
			more = -1
		}
		switch {
		case cut && !first:
			c.cut(comma, i)
		case cut && more >= 0 && c.at(c.space(more+1)) == '"':
			c.cut(start, more+1)
		case cut:
			c.cut(start, i)
		default:
			first = false
		}
		if c.left == 0 {
			return i, true
		}
		if more < 0 {
			break
		}
		i, comma = more, more
	}
	i = c.space(i)
	return i + 1, c.at(i) == '}'
}

// cut leaves out a field, with one of the commas around it.
func (c *jsonCut) cut(from, to int) {
	c.dst = append(c.dst, c.buf[c.copied:from]...)
	c.copied = to
	c.left--
}

// paddedLength is the number of bytes of a length that is filled in after the content is written.
const paddedLength = 5

// cutBinary appends a message to dst, without the omitted fields. It returns false if it does not understand
// the message.
func cutBinary(f *omitted, dst, raw []byte) ([]byte, bool) {
	for len(raw) > 0 {
		tag, k := binary.Uvarint(raw)
		size, n := 0, 0
		switch {
		case k <= 0:
			return dst, false
		case tag&7 == 0:
			_, n = binary.Uvarint(raw[k:])
		case tag&7 == wireLength:
			var ok bool
			if _, size, n, ok = field(raw); !ok {
				return dst, false
			}
			n -= k
		}
		if n <= 0 || size > len(raw)-k-n { // fixed64, fixed32 and groups are in no message of Kubernetes that is cut
			return dst, false
		}
		kid := f.kid(func(of *omitted) bool { return of.number > 0 && uint64(of.number) == tag>>3 })
		whole := raw[:k+n+size]
		raw = raw[len(whole):]
		switch {
		case kid == nil:
			dst = append(dst, whole...)
		case kid.fields == nil:
		case tag&7 != wireLength:
			return dst, false
		default:
			dst = append(dst, whole[:k]...)
			begin := len(dst) + paddedLength
			var ok bool
			if dst, ok = cutBinary(kid, append(dst, make([]byte, paddedLength)...), whole[k+n:]); !ok {
				return dst, false
			}
			length := uint64(len(dst) - begin)
			for at := range paddedLength {
				dst[begin-paddedLength+at] = byte(length>>(7*at)) | 0x80
			}
			dst[begin-1] &= 0x7f
		}
	}
	return dst, true
}
