package blocklog

// Stats contains statistics of a [Log]. Readers, Groups and CatchingUp are current numbers. The other fields count
// events since the Log was created.
type Stats struct {
	// Blocks is the number of accepted blocks.
	Blocks uint64

	// Duplicates is the number of blocks that were dropped because they had the cursor of the newest block.
	Duplicates uint64

	// OutOfOrder is the number of blocks that were dropped because their cursor was lower than that of the newest
	// block, for example because Follow repeated them after a restart.
	OutOfOrder uint64

	// Restarts is the number of times that a failed source was called again.
	Restarts uint64

	// Readers is the number of readers that have joined and have not been closed. It includes readers that have ended.
	Readers int

	// Groups is the number of different keys of the readers that have not ended. It is the number of Evals per block.
	Groups int

	// Resumed is the number of readers that joined with a cursor.
	Resumed uint64

	// CaughtUp is the number of times that a reader that was catching up became live.
	CaughtUp uint64

	// PageReads is the number of calls of the source's Page for readers that were catching up.
	PageReads uint64

	// PageBlocks is the number of blocks in the pages that readers received from these calls.
	PageBlocks uint64

	// CatchingUp is the number of readers that are catching up.
	CatchingUp int

	// GapsFound is the number of gaps that were found in new blocks.
	GapsFound uint64

	// GapsRepaired is the number of gaps that were filled with the missing blocks.
	GapsRepaired uint64

	// EndedByGap is the number of readers that ended with ErrGap.
	EndedByGap uint64

	// Backwards is the number of blocks whose sequence number was lower than expected after the head of their shard.
	Backwards uint64
}

// Stats returns the current statistics.
func (l *Log[B]) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.stats
	s.Groups = len(l.groups)
	s.CatchingUp = int(l.catchingUp.Load())
	s.EndedByGap += l.pageEnd.Load()
	return s
}
