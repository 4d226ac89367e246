package framing_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"regexp"
	"testing"
	"testing/iotest"
)

// client-go also reads the kind of an object from a field whose name has other capitals. A watch
// with a tap does not, because no server sends that.
var capitals = regexp.MustCompile(`(?i)kind|apiversion`)

// FuzzBodies compares what clients get from any body, in pieces of any size, with and without a tap.
func FuzzBodies(f *testing.F) {
	for k, c := range inMemory {
		for live, odd := range map[bool][]oddBody{false: oddLists, true: oddWatches} {
			flags := uint8(k)
			if live {
				flags |= 8
			}
			if c.binary {
				odd = c.oddBinary(live)
			}
			for _, o := range odd {
				if body := c.oddWords().Replace(o.body); len(body) < 2000 {
					f.Add([]byte(body), uint64(k), flags)
				}
			}
			f.Add(c.listBody(3, live), uint64(1), flags&^8)
			f.Add(c.watchBody(3), uint64(2), flags|8|16)
			if raw := c.broken(live); raw != nil && !c.binary {
				f.Add([]byte(`{"type":"ADDED","object":`+string(raw)+`}`), uint64(3), flags|8)
			}
		}
	}
	cut := errors.New("cut")
	f.Fuzz(func(t *testing.T, body []byte, seed uint64, flags uint8) {
		c, live := inMemory[int(flags&7)%len(inMemory)], flags&8 != 0
		for _, name := range capitals.FindAllString(string(body), -1) {
			if name != "kind" && name != "apiVersion" && live && !c.binary {
				t.Skip("a kind in other capitals")
			}
		}
		c.both(t, live, func() io.Reader {
			r := io.Reader(bytes.NewReader(body))
			if flags&16 != 0 {
				r = io.MultiReader(r, iotest.ErrReader(cut))
			}
			random := rand.New(rand.NewPCG(seed, 0))
			p := &pieces{from: r}
			for range 16 {
				p.sizes = append(p.sizes, 1+random.IntN(1<<random.IntN(12)))
			}
			return p
		})
	})
}
