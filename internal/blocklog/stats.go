package blocklog

// Stats contains counts of a Log since it was created, and its present readers.
type Stats struct {
	Blocks     uint64 // number of accepted blocks
	Duplicates uint64 // blocks dropped because their cursor was that of the newest block
	OutOfOrder uint64 // blocks dropped because their cursor was lower, for example repeated after a restart
	Restarts   uint64 // how often a failed source was called again
	Readers    int    // readers that joined and have not been closed, including those that have ended
	Groups     int    // different keys of the readers that have not ended: the number of Evals per block

	Resumed    uint64 // joins with a cursor
	CaughtUp   uint64 // how often a reader that was catching up became live
	PageReads  uint64 // calls of the source's Page
	PageBlocks uint64 // blocks that these calls returned
	CatchingUp int    // readers that are catching up now

	GapsFound    uint64 // gaps in new blocks
	GapsRepaired uint64 // gaps whose blocks were found
	EndedByGap   uint64 // readers that ended with ErrGap
	Backwards    uint64 // blocks whose sequence number was lower than that of their head
}

// Stats returns the current counts.
func (l *Log[B]) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.stats
	s.Groups = len(l.groups)
	s.CatchingUp = int(l.catchingUp.Load())
	s.EndedByGap += l.pageEnd.Load()
	return s
}
