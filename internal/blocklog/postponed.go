package blocklog

import (
	"sync"

	"github.com/chaingql/chaingql/internal/xsync"
)

// advance lets the live readers of a postponed group evaluate all blocks of the window that they have not read, like
// blocks whose payloads were discarded. The caller must hold g.mu.
func (g *shareGroup[B]) advance() {
	if g.postponed {
		next := g.log.view.Load().newest.next
		g.matched, g.since = next, next
	}
}

// A postponedList contains the postponed groups, whose readers are woken by one goroutine while further blocks are
// delivered to others.
type postponedList[B any] struct {
	mu     sync.Mutex
	groups []*shareGroup[B]
	active int  // the groups from this index on may still be active; guarded by the log's lock
	waking bool // the goroutine runs; guarded by the log's lock
}

func (p *postponedList[B]) add(g *shareGroup[B]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.groups = append(p.groups, g)
}

// deactivatePostponed makes all postponed groups inactive, so that the next block is not delivered to them, and returns
// their number. The caller must hold l.mu and l.postponed.mu.
func (l *Log[B]) deactivatePostponed() int {
	p := &l.postponed
	for ; p.active < len(p.groups); p.active++ {
		l.setActive(p.groups[p.active], false)
	}
	return p.active
}

// wakePostponed is called after each delivery, before the next block is published. If there are postponed groups, and
// if the goroutine that wakes their readers does not run, it starts that.
func (l *Log[B]) wakePostponed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.postponed.mu.Lock()
	defer l.postponed.mu.Unlock()
	if l.deactivatePostponed() > 0 && !l.postponed.waking {
		l.postponed.waking = true
		l.busy++
		go l.resumePostponed()
	}
}

// resumePostponed ends the postponement of all groups, and wakes the readers that have blocks to evaluate.
func (l *Log[B]) resumePostponed() {
	var wakes []xsync.Waker
	for groups := l.takePostponed(); len(groups) > 0; groups = l.takePostponed() {
		for _, g := range groups {
			wakes = l.resume(g, wakes[:0])
			l.callAll(wakes)
		}
	}
}

// takePostponed removes all groups from the list and returns them. If there are none, resumePostponed must end.
func (l *Log[B]) takePostponed() (groups []*shareGroup[B]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := &l.postponed
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.deactivatePostponed() == 0 {
		p.waking = false
		l.taskDone()
	}
	groups, p.groups, p.active = p.groups, nil, 0
	return groups
}

// resume ends the postponement of a group, and appends to wakes the wake functions of the readers that have blocks to
// evaluate. Blocks that are published from now on are delivered to the group, and its readers evaluate all others.
func (l *Log[B]) resume(g *shareGroup[B], wakes []xsync.Waker) []xsync.Waker {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.setActive(g, true)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.advance()
	g.postponed = false
	for _, r := range g.members {
		if r.at.next < g.matched && r.wake != nil {
			r.postponed, wakes = true, append(wakes, r.wake)
		}
	}
	return wakes
}

// setActive moves a group, unless it was removed, to the active ones or to the others.
func (l *Log[B]) setActive(g *shareGroup[B], active bool) {
	if g.slot < 0 || active == (g.slot < l.active) {
		return
	}
	if active {
		l.swapGroups(g.slot, l.active)
		l.active++
	} else {
		l.active--
		l.swapGroups(g.slot, l.active)
	}
}

func (l *Log[B]) swapGroups(i, j int) {
	l.groups[i], l.groups[j] = l.groups[j], l.groups[i]
	l.groups[i].slot, l.groups[j].slot = i, j
}
