package framing

import (
	"bytes"

	"k8s.io/apimachinery/pkg/util/json"
)

// at returns the byte at an offset of the window, or 0 at the end of the stream.
func (w *window) at(i int) byte {
	if !w.has(i + 1) {
		return 0
	}
	return w.buf[w.a+i]
}

// space returns the offset of the first byte from i on that is not white space.
func (w *window) space(i int) int {
	for isSpace(w.at(i)) {
		i++
	}
	return i
}

// skipSpace skips white space. It frees a large buffer before it waits for more.
func (w *window) skipSpace() {
	for {
		n := 0
		for n < len(w.data()) && isSpace(w.data()[n]) {
			n++
		}
		if w.skip(n); len(w.data()) > 0 {
			return
		}
		if w.release(); !w.more() {
			return
		}
	}
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\r' || c == '\t' }

// value returns the offset of the end of the JSON value at offset i. It only counts brackets and
// skips strings; the decoder checks the rest. It returns false if the value is not complete, is
// nested too deep, or has more than limit bytes.
func (w *window) value(i, limit int) (end int, ok bool) {
	depth, start := 0, i
	quoted := false // within a string
	for {
		for data := w.data(); i < len(data); i++ {
			if quoted {
				k := bytes.IndexByte(data[i:], '"')
				if k < 0 {
					i = len(data)
					break
				}
				if i += k; isEscaped(data, i) {
					continue
				}
				if quoted = false; depth == 0 {
					return i + 1, true
				}
				continue
			}
			switch c := data[i]; c {
			case '"':
				quoted = true
			case '{', '[':
				if depth++; depth > maxDepth {
					return i, false
				}
			case '}', ']':
				if depth--; depth == 0 {
					return i + 1, true
				}
			}
			if depth <= 0 && !quoted && isDelimiter(data[i]) {
				return i, i > start
			}
		}
		if i-start > limit || !w.more() {
			return i, false
		}
	}
}

// isDelimiter reports whether c ends a number, true, false or null.
func isDelimiter(c byte) bool { return c == ',' || c == ':' || c == '}' || c == ']' || isSpace(c) }

// isEscaped reports whether the byte at offset i of a string follows an odd number of backslashes.
func isEscaped(data []byte, i int) bool {
	k := i
	for data[k-1] == '\\' {
		k--
	}
	return (i-k)%2 == 1
}

// text returns the string in a JSON value, or "" if the value is not a string.
func text(s []byte) string {
	var out string
	if json.Unmarshal(s, &out) != nil {
		return ""
	}
	return out
}
