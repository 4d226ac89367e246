package framing

import "io"

const (
	maxItem  = 64 << 20
	maxEvent = 16 << 20
	maxDepth = 9_000 // of JSON; client-go's decoders have 10,000 for all of a list or an event

	// A list that is not small gets a large buffer, because each small read is a system call.
	listBuffer = 256 << 10
	// The first buffer has this size. A watch keeps no larger one while it is idle.
	watchBuffer = 4 << 10
)

// A window is the part of a stream that was read but not used yet.
type window struct {
	from io.Reader
	next int // the least size of a buffer after the first, and the most that release leaves
	buf  []byte
	a, b int // buf[a:b] is the window
	err  error
}

func (w *window) data() []byte { return w.buf[w.a:w.b] }

// skip removes the first n bytes.
func (w *window) skip(n int) {
	if w.a += n; w.a < w.b {
		return
	}
	w.a, w.b = 0, 0
}

// release frees the buffer if it is empty and larger than next.
func (w *window) release() {
	if w.a == w.b && len(w.buf) > w.next {
		w.buf, w.a, w.b = nil, 0, 0
	}
}

// more reads from the stream. It returns false at the end of the stream or after an error, which
// is in err.
func (w *window) more() bool {
	if w.err != nil {
		return false
	}
	if w.b == len(w.buf) {
		to := w.buf
		if n := w.b - w.a; n > len(w.buf)/2 || w.a == 0 || len(w.buf) < w.next {
			size := watchBuffer
			if len(w.buf) > 0 {
				size = max(w.next, 2*len(w.buf))
			}
			to = make([]byte, size)
		}
		w.b = copy(to, w.data())
		w.a, w.buf = 0, to
	}
	for range 100 { // as bufio does
		var n int
		n, w.err = w.from.Read(w.buf[w.b:])
		if w.b += n; n > 0 || w.err != nil {
			return n > 0
		}
	}
	w.err = io.ErrNoProgress
	return false
}

// has reads until the window has n bytes. It returns false if the stream ends before.
func (w *window) has(n int) bool {
	for len(w.data()) < n {
		if !w.more() {
			return false
		}
	}
	return true
}

// Read reads the rest: first the window, and then the stream.
func (w *window) Read(p []byte) (int, error) {
	if n := copy(p, w.data()); n > 0 {
		w.skip(n)
		return n, nil
	}
	w.buf, w.a, w.b = nil, 0, 0
	if w.err != nil {
		return 0, w.err
	}
	var n int
	n, w.err = w.from.Read(p)
	return n, w.err
}
