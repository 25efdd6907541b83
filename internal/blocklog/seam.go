package blocklog

// seam is where a reader that has caught up goes from stored blocks to the window: a block that is missing from its
// pages may show only there.
type seam[B any] struct {
	heads  lines    // the newest block of each shard up to view's newest
	began  string   // where the catch-up began; heads has the newest block of every shard from there on
	cursor string   // the reader's
	view   *view[B] // the window whose blocks have been looked at
	gaps   []pageGap
}

// approach judges the window's blocks after a reader's cursor, without a lock. It returns nil for a reader that has read
// no page or does not reach the window yet.
func (l *Log[B]) approach(r *Reader[B]) *seam[B] {
	r.feed.mu.Lock()
	c, cursor := r.catchUp, r.at.cursor
	r.feed.mu.Unlock()
	v := l.view.Load()
	if c == nil || c.heads == nil || cursor < v.base.cursor || cursor > v.newest.cursor {
		return nil
	}
	s := &seam[B]{heads: c.heads.clone(), began: r.from, cursor: cursor, view: v}
	s.goOn(l, v, cursor)
	return s
}

func (s *seam[B]) goOn(l *Log[B], v *view[B], after string) {
	for i := v.from(after); i < len(v.blocks); i++ {
		s.gaps = s.heads.goOn(l.src.Place(v.blocks[i]), v.stamps[i].cursor, s.gaps)
	}
}

// check judges what has come since approach, and the shards that have had no block since the reader's cursor: the log
// knows their newest ones. Called with the log's lock held.
func (l *Log[B]) check(s *seam[B]) {
	if s == nil {
		return
	}
	if v := l.view.Load(); v != s.view {
		s.goOn(l, v, s.view.newest.cursor)
	}
	for workchain, leaves := range l.lines {
		for _, f := range leaves {
			p := Place{Workchain: workchain, Shard: f.shard}
			if !f.unknown && f.cursor > s.began && f.cursor <= s.cursor && !s.heads.passed(p, f.cursor) {
				before := s.heads.reached(p, s.began)
				s.gaps = append(s.gaps, pageGap{workchain: workchain, before: before, until: f.cursor})
			}
		}
	}
	for i := range s.gaps {
		s.gaps[i].straddles = s.gaps[i].before < s.began
	}
	l.number(s.gaps)
	sortGaps(s.gaps)
}

func (s *seam[B]) found() bool { return s != nil && len(s.gaps) > 0 }
