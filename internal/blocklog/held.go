package blocklog

// heldPages is the maximum number of pages that readers have not read to the end. If there are more, the oldest is
// dropped: its readers read it again from the source when they go on. Without a bound, readers that stop would keep a
// page each.
const heldPages = 1024

// hold counts a page that has been read, for those who waited for it. Called with the log's lock held.
func (l *Log[B]) hold(p *page[B]) {
	p.held = l.held.PushBack(p)
	for r := range p.waiting {
		r.holds = p
	}
	if l.held.Len() <= l.maxHeld {
		return
	}
	oldest := l.held.Remove(l.held.Front()).(*page[B])
	oldest.held = nil
	for r := range oldest.waiting {
		r.feed.mu.Lock()
		r.turned, r.catchUp = true, nil
		r.feed.mu.Unlock()
		if r.holds = nil; r.asked == oldest {
			r.asked = nil
		}
	}
}

// letGo is for when a reader does not need its page any more. Called with the log's lock held.
func (l *Log[B]) letGo(r *Reader[B]) {
	p := r.holds
	if r.holds = nil; p == nil {
		return
	}
	if delete(p.waiting, r); len(p.waiting) == 0 {
		l.held.Remove(p.held)
	}
}
