package blocklog

// A handover checks for gaps when a reader changes from stored blocks to the window. It is needed because a block that
// is missing from the reader's pages may be noticed only by comparison with blocks of the window.
type handover[B any] struct {
	heads  shardHeads // the newest block of each shard up to the end of view
	began  string     // heads contains every shard that had a block after this cursor
	cursor string     // the reader's position
	view   *view[B]   // the window that prepareHandover checked
	gaps   []pageGap  // the gaps found

	checked bool // the check has ended, and no gap found affects the reader
}

// prepareHandover checks the window's blocks after a reader's cursor without holding a lock. It returns nil if the
// cursor is not in the window. It also returns nil if the reader has read no page: then the log has already checked
// these blocks, and the reader knows no others.
func (l *Log[B]) prepareHandover(r *Reader[B]) *handover[B] {
	r.group.mu.Lock()
	c, cursor, from := r.catchUp, r.at.cursor, r.from
	r.group.mu.Unlock()
	v := l.view.Load()
	if c == nil || c.heads == nil || cursor < v.base.cursor || cursor > v.newest.cursor {
		return nil
	}
	heads, _ := c.heads.upTo(cursor)
	s := &handover[B]{heads: heads.clone(), began: max(c.began, from), cursor: cursor, view: v}
	s.add(l, v, cursor)
	return s
}

// add looks for gaps before and between the blocks of window v after the cursor.
func (s *handover[B]) add(l *Log[B], v *view[B], after string) {
	for i := v.from(after); i < len(v.blocks); i++ {
		s.gaps = s.heads.checkAndSet(l.src.Place(v.blocks[i]), v.stamps[i].cursor, s.began, s.gaps)
	}
}

// checkHandover checks the blocks that arrived after prepareHandover. It also compares the reader's heads with the
// heads of the log, because a shard may have no block after the reader's cursor that could show a gap. The caller must
// hold the log's lock.
func (l *Log[B]) checkHandover(s *handover[B]) {
	if s == nil || s.checked {
		return
	}
	if v := l.view.Load(); v != s.view {
		s.add(l, v, s.view.newest.cursor)
	}
	s.compare(l.heads)
	s.compare(l.learned)
	for i := range s.gaps {
		s.gaps[i].straddles = s.gaps[i].before < s.began
	}
	l.numberGaps(s.gaps)
	sortGaps(s.gaps)
}

// compare adds a gap for each block in others that is missing from the reader's pages: the block is between s.began and
// s.cursor, but the reader has seen no block of its shard at that cursor or after it.
func (s *handover[B]) compare(others shardHeads) {
	for workchain, heads := range others {
		for _, h := range heads {
			p := Place{Workchain: workchain, Shard: h.shard}
			if !h.unknown && h.cursor > s.began && h.cursor <= s.cursor && !s.heads.passed(p, h.cursor) {
				before := s.heads.reached(p, s.began)
				s.gaps = append(s.gaps, pageGap{workchain: workchain, before: before, until: h.cursor})
			}
		}
	}
}

// learn is called when a reader becomes live. It records the newest blocks that the reader has seen of shards for which
// the log knows no block, because the log needs them to check the next blocks of these shards. It leaves out blocks
// after the start of the log: Follow has skipped them, so other readers lack them. The caller must hold the log's lock.
func (l *Log[B]) learn(s *handover[B]) {
	if s == nil || !l.checked() {
		return
	}
	if l.learned == nil {
		l.learned = make(shardHeads)
	}
	heads, _ := s.heads.upTo(l.startCursor)
	l.learned.fill(heads)
}

// addLearned adds the learned heads to the log's own heads. Only run's goroutine may call it.
func (l *Log[B]) addLearned() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heads.fill(l.learned)
	l.learned = nil
}

func (s *handover[B]) hasGaps() bool { return s != nil && len(s.gaps) > 0 }
