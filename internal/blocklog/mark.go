package blocklog

// Mark is what a client has to come back with, beside a cursor of this Reader, so that it is not told again of a gap
// that it was told of. It is zero until the client is sent back. It means something only to the same Log.
//
//	63     32 31   1 0
//	known     told   markHere
type Mark uint64

const (
	// markHere is set in a Mark whose cursor is the one that the client was sent back to.
	markHere = 1

	markBits = 31 // of told
)

func newMark(told, known uint32) Mark {
	return Mark(known)<<(markBits+1) | Mark(told)<<1&(1<<(markBits+1)-1)
}

// gaps returns the number of the newest gap when the client was last sent back.
func (m Mark) gaps() uint32 { return uint32(m) >> 1 }

// lastings returns the highest number of the gaps that stay because of which the client was sent back.
func (m Mark) lastings() uint32 { return uint32(m >> (markBits + 1)) }

func (r *Reader[B]) mark(cursor string) Mark {
	if r.told == 0 {
		return 0
	}
	m := newMark(r.told, r.known)
	if r.lost == ErrGap || cursor == r.sentBack {
		m |= markHere
	}
	return m
}
