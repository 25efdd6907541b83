package blocklog

// A Mark records of which gaps a client was informed, so that a client that resumes does not receive ErrGap for the same
// gap again. The client resumes with a cursor and the Mark that was returned with it. A Mark is zero for a client that
// has never received ErrGap. After ErrGap, only the cursor to resume from has a Mark that is not zero. It is valid only
// for the Log that created it.
//
//	bits 63-32  highest number of a gap that stayed and was reported
//	bits 31-1   number of the newest gap at that time
//	bit 0       markHere
type Mark uint64

const (
	// markHere is set if the cursor of the Mark is the one to which the client was sent back.
	markHere = 1

	markBits = 31 // number of bits of the gap number
)

func newMark(gap, lasting uint32) Mark {
	return Mark(lasting)<<(markBits+1) | Mark(gap)<<1&(1<<(markBits+1)-1)
}

// gaps returns the number of the newest gap when the client was last sent back.
func (m Mark) gaps() uint32 { return uint32(m) >> 1 }

// lastings returns the highest number of the lasting gaps for which the client was sent back.
func (m Mark) lastings() uint32 { return uint32(m >> (markBits + 1)) }

// mark returns the Mark of a cursor. After the Reader was sent back with ErrGap, it is zero for all cursors but the one
// to which it was sent back: r.reportedGap already counts the gap, which would not be reported to a client that resumes
// elsewhere.
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
