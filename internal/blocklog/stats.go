package blocklog

// Stats counts what happened to a Log since it was made, and who reads it now.
type Stats struct {
	Blocks     uint64 // accepted, each once
	Duplicates uint64 // dropped: the same cursor as the newest block
	OutOfOrder uint64 // dropped: a cursor below the newest block's, a replay after a restart included
	Restarts   uint64 // how often a failed source was asked again
	Readers    int    // joined and not yet closed, those that have ended included
	Feeds      int    // different keys among the readers that have not ended: the evaluations a block costs

	Resumed    uint64 // joins with a cursor
	CaughtUp   uint64 // how often a reader that was behind became live
	PageReads  uint64 // calls of the source's Page
	PageBlocks uint64 // what they brought
	Behind     int    // readers that are behind now

	Holes     uint64 // found
	Healed    uint64 // of them
	Gaps      uint64 // readers ended with ErrGap
	Backwards uint64 // blocks whose seq_no was lower than the one before them requires
}

// Stats returns the counts of this moment.
func (l *Log[B]) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.stats
	s.Feeds = len(l.feeds)
	s.Behind = int(l.behind.Load())
	s.Gaps += l.pageEnd.Load()
	return s
}
