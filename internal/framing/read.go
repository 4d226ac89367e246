package framing

// Read reads the real body until there is something for the reader. It reads a list to its end at
// once.
func (b *body) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for len(b.out) == 0 {
		switch {
		case b.err != nil:
			return 0, b.err
		case b.raw:
			return b.in.Read(p)
		case b.live && b.binary:
			b.frameBinary()
		case b.live:
			b.frameJSON()
		case b.binary:
			b.listBinary()
			b.raw = true
		default:
			b.listJSON()
			b.raw = true
		}
	}
	n := copy(p, b.out)
	if b.out = b.out[n:]; len(b.out) == 0 {
		b.out = nil // it may be large
	}
	return n, nil
}
