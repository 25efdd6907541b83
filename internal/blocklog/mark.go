package blocklog

// A Mark records which gaps were reported to a client, so that the client does not receive ErrGap for the same gap
// again after it resumes. A client that receives ErrGap is sent back: it must resume from an earlier cursor. It resumes
// with that cursor and the Mark that was returned with it. The Mark of a client that was never sent back is zero. After
// ErrGap, only the cursor from which the client must resume has a Mark that is not zero. A Mark is valid only for the
// Log that created it.
//
//	bits 63-32  highest number of a lasting gap because of which the client was sent back
//	bits 31-1   number of the newest gap when the client was last sent back
//	bit 0       markHere
type Mark uint64

const (
	// markHere is set if the cursor of the Mark is the one to which the client was sent back.
	markHere = 1

	markBits = 31 // size of the gap number in bits
)

func newMark(gap, lasting uint32) Mark {
	return Mark(lasting)<<(markBits+1) | Mark(gap)<<1&(1<<(markBits+1)-1)
}

// gaps returns the number of the newest gap when the client was last sent back.
func (m Mark) gaps() uint32 { return uint32(m) >> 1 }

// lastings returns the highest number of the lasting gaps because of which the client was sent back.
func (m Mark) lastings() uint32 { return uint32(m >> (markBits + 1)) }

// mark returns the Mark for a cursor. If the reader has ended with ErrGap, the Mark is zero for all cursors except the
// one to which the client was sent back. r.reportedGap already includes the gap, so a client that resumed elsewhere
// with this number would not receive ErrGap for it. The caller must hold the group's lock.
func (r *Reader[B]) mark(cursor string) Mark {
	if r.reportedGap == 0 || r.lost == ErrGap && cursor != r.at.cursor {
		return 0
	}
	m := newMark(r.reportedGap, r.reportedLasting)
	if r.lost == ErrGap || cursor == r.sentBack {
		m |= markHere
	}
	return m
}
