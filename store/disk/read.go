package disk

import (
	"bytes"
	"context"

	"go.etcd.io/bbolt"
)

// These are the limits of one read transaction. It only copies the records. Decoding them takes
// some twenty times as long, and begins after the transaction.
const (
	pageRecords = 1000
	pageBytes   = 4 << 20
)

// item is a copy of a record.
type item struct {
	at      []byte // position in its range; the next read continues after it
	key     []byte // key of the object
	payload []byte
}

type recordRange interface {
	// read calls yield for the records after position at, in order, until yield returns false.
	// If at is nil, it begins with the first record. The records belong to tx.
	read(tx *bbolt.Tx, at []byte, yield func(at, key, record []byte) bool) error
}

type bucketRange struct{ bucket string }

func (r bucketRange) read(tx *bbolt.Tx, at []byte, yield func(at, key, record []byte) bool) error {
	c := tx.Bucket([]byte(r.bucket)).Cursor()
	for key, record := after(c, at); key != nil && yield(key, key, record); {
		key, record = c.Next()
	}
	return nil
}

// after moves a cursor to the first key after at. at need not exist. If at is nil, it moves
// the cursor to the first key.
func after(c *bbolt.Cursor, at []byte) (key, record []byte) {
	if at == nil {
		return c.First()
	}
	if key, record = c.Seek(at); bytes.Equal(key, at) {
		return c.Next()
	}
	return key, record
}

// page reads up to limit records after position at. It reads fewer if they are large, but at
// least one if there is one.
func (d *database) page(r recordRange, at []byte, limit int) (items []item, err error) {
	var buffer []byte // one buffer for all records, to produce less garbage
	var sizes [][3]int
	err = d.view(func(tx *bbolt.Tx) error {
		return r.read(tx, at, func(at, key, record []byte) bool {
			buffer = append(append(append(buffer, at...), key...), record...)
			sizes = append(sizes, [3]int{len(at), len(key), len(record)})
			return len(sizes) < min(limit, pageRecords) && len(buffer) < pageBytes
		})
	})
	if err != nil {
		return nil, err
	}
	cut := func(n int) (b []byte) {
		b, buffer = buffer[:n:n], buffer[n:]
		return b
	}
	for _, size := range sizes {
		i := item{at: cut(size[0]), key: cut(size[1])}
		if i.payload, err = unseal(i.key, cut(size[2])); err != nil {
			return nil, err
		}
		items = append(items, i)
	}
	return items, nil
}

// each reads a range page by page, and calls visit for up to limit of its records. It stops at
// the first error, and returns it.
func (d *database) each(ctx context.Context, r recordRange, at []byte, limit int, visit func(item) error) error {
	for limit > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		items, err := d.page(r, at, limit)
		if err != nil || len(items) == 0 {
			return err
		}
		for _, i := range items {
			if err := visit(i); err != nil {
				return err
			}
		}
		at, limit = items[len(items)-1].at, limit-len(items)
	}
	return nil
}

const unlimited = int(^uint(0) >> 1)
