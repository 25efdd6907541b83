package blocklog

// ReportedGaps records which gaps were reported to a client, so that the client does not receive ErrGap for the same
// gap again after it resumes. A client that receives ErrGap is sent back: it must resume from an earlier cursor, and
// passes the ReportedGaps that were returned together with that cursor. The value is zero for a client that was never
// sent back. It is valid only for the Log that created it.
//
//	bits 63-32  highest number of a permanent gap because of which the client was sent back
//	bits 31-1   number of the newest gap when the client was last sent back
//	bit 0       sentBackHere
type ReportedGaps uint64

const (
	// sentBackHere is set if the value belongs to the cursor to which the client was sent back.
	sentBackHere = 1

	gapBits = 31 // size of the gap number in bits
)

func newReportedGaps(gap, permanent uint32) ReportedGaps {
	return ReportedGaps(permanent)<<(gapBits+1) | ReportedGaps(gap)<<1&(1<<(gapBits+1)-1)
}

// newest returns the number of the newest gap when the client was last sent back.
func (m ReportedGaps) newest() uint32 { return uint32(m) >> 1 }

// permanent returns the highest number of the permanent gaps because of which the client was sent back.
func (m ReportedGaps) permanent() uint32 { return uint32(m >> (gapBits + 1)) }

// reportedGaps returns the ReportedGaps for the cursor of an item or for the reader's position. If the reader has ended
// with ErrGap, they are for its position only: a client that resumed elsewhere with them would not receive ErrGap. The
// caller must hold the group's lock.
func (r *Reader[B]) reportedGaps(cursor string) ReportedGaps {
	if r.reportedGap == 0 {
		return 0
	}
	m := newReportedGaps(r.reportedGap, r.reportedPermanent)
	if r.lost == ErrGap || cursor == r.sentBackTo() {
		m |= sentBackHere
	}
	return m
}

// sentBackTo returns the cursor with which the reader joined, if the client was sent back to it, and otherwise "".
func (r *Reader[B]) sentBackTo() string {
	if r.sentBack {
		return r.from
	}
	return ""
}
