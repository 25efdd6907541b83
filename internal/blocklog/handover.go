package blocklog

// A handover checks the transition of a reader from stored blocks to the window: a block that is missing from the
// reader's pages may show only there.
type handover[B any] struct {
	heads  shardHeads // the newest block of each shard up to the end of view
	began  string     // the position from which heads has the newest block of every shard
	cursor string     // the reader's position
	view   *view[B]   // the window whose blocks have been checked
	gaps   []pageGap

	checked bool // no gap concerns the reader
}

// prepareHandover checks the window's blocks after a reader's cursor without holding a lock. It returns nil if the
// cursor is not in the window yet, or if the reader has read no page: such a reader knows no more heads than the log,
// which has checked these blocks.
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

// add checks the blocks of a window after a cursor.
func (s *handover[B]) add(l *Log[B], v *view[B], after string) {
	for i := v.from(after); i < len(v.blocks); i++ {
		s.gaps = s.heads.checkAndSet(l.src.Place(v.blocks[i]), v.stamps[i].cursor, s.gaps)
	}
}

// checkHandover checks the blocks that arrived after prepareHandover, and the shards without a block after the reader's
// cursor, whose heads the log knows. Called with the log's lock held.
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

// compare adds the gaps that show because other heads have a block that the reader has not passed.
func (s *handover[B]) compare(with shardHeads) {
	for workchain, heads := range with {
		for _, h := range heads {
			p := Place{Workchain: workchain, Shard: h.shard}
			if !h.unknown && h.cursor > s.began && h.cursor <= s.cursor && !s.heads.passed(p, h.cursor) {
				before := s.heads.reached(p, s.began)
				s.gaps = append(s.gaps, pageGap{workchain: workchain, before: before, until: h.cursor})
			}
		}
	}
}

// learn records heads that a reader knows when it becomes live, of shards that the log does not know: it receives the
// next blocks of these shards. A head after the start of the log is not recorded: it is a block that Follow has
// skipped, and other readers lack it. Called with the log's lock held.
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

// addLearned adds the learned heads to the log's own. Called by the following goroutine.
func (l *Log[B]) addLearned() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heads.fill(l.learned)
	l.learned = nil
}

func (s *handover[B]) hasGaps() bool { return s != nil && len(s.gaps) > 0 }
