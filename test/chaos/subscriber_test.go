package chaos_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/chaingql/chaingql"
)

// A resuming selects how a subscriber resumes after its subscription has ended.
type resuming int

const (
	asDocumented resuming = iota
	fromNow               // wrong: resumes without a cursor, so that it loses blocks
	tooEarly              // wrong: resumes before its last block, so that it receives that block again
	keepBlocks            // wrong: keeps its blocks after STREAM_GAP, so that it receives some again
)

// An end describes how a subscription or its connection ended.
type end struct {
	what   string // description for logs
	code   string // code of the error; "" if there was none
	cursor string // cursor of the error; "" if there was none
	oldest string // oldest available cursor, from the error CURSOR_TOO_OLD
}

// A place is the position at which a subscription starts.
type place struct {
	after string // value of the argument "after"
	last  string // value of the header Last-Event-ID
}

// A subscriber is one subscription, which is restarted after each end. It does no more than
// docs/protocol.md requires of clients. In particular, it discards blocks only after STREAM_GAP.
type subscriber struct {
	name   string
	peer   *peer
	filter filter
	resume resuming
	own    bool  // resumes after its last block if the protocol permits it, not from cursors of errors and events
	begins int   // number of the block after which it starts; -1 is before the first one
	goal   int32 // number of the last block that matches the filter; -1 if there is none
	world  *world
	truth  *truth // the chain that it reads
	id     string // current operation id

	mu        sync.Mutex
	got       []int32 // numbers of the received blocks, except discarded blocks
	at        string  // cursor from which it resumes
	service   int     // number of the service of the last connection
	tally     tally
	connected bool
	last      end
	wrong     string // first protocol violation
	rewinds   []rewind
	silent    []int32        // blocks that the source never had, and for which it received no STREAM_GAP
	until     int            // number of connections when the chain was replaced, if the last one had a running stream
	refused   string         // cursor of the old chain when it received EPOCH_CHANGED
	directly  bool           // received EPOCH_CHANGED in the stream that ran when the chain was replaced
	excused   map[*hole]bool // holes that no service could report to it
	journal   []entry
}

// A rewind records one STREAM_GAP.
type rewind struct {
	cursor chaingql.Cursor // cursor of the error, without its suffix
	when   time.Time
}

// An entry is an event in the journal of a subscriber. The field block is the number of its last block at
// that time.
type entry struct {
	block int
	when  time.Time
	what  string
}

// note adds an entry to the journal. The caller holds s.mu.
func (s *subscriber) note(format string, args ...any) {
	s.journal = append(s.journal, entry{s.lastBlock(), time.Now(), fmt.Sprintf(format, args...)})
}

// lastBlock returns the number of the last block that was received and not discarded. The caller holds
// s.mu.
func (s *subscriber) lastBlock() int {
	if n := len(s.got); n > 0 {
		return int(s.got[n-1])
	}
	return s.begins
}

// fail records a violation of the protocol if it is the first one. The caller holds s.mu.
func (s *subscriber) fail(format string, args ...any) {
	if s.wrong == "" {
		s.wrong = fmt.Sprintf(format, args...)
	}
}

// A tally counts the events of one or more subscribers.
type tally struct {
	delivered    int           // blocks received
	connections  int           // connections, each with a new subscription
	resumed      int           // connections that resumed after a received block
	withCursor   int           // ends with a cursor
	gaps         int           // ends with STREAM_GAP
	duringSearch int           // ends with STREAM_GAP while the service searched
	forgotten    int           // blocks discarded after STREAM_GAP
	lag          time.Duration // longest time from the commit of a block until it was received
}

func (t *tally) add(o tally) {
	t.delivered, t.connections, t.resumed = t.delivered+o.delivered, t.connections+o.connections, t.resumed+o.resumed
	t.withCursor, t.gaps, t.duringSearch = t.withCursor+o.withCursor, t.gaps+o.gaps, t.duringSearch+o.duringSearch
	t.forgotten = t.forgotten + o.forgotten
}

// place returns the position at which the next subscription starts. Subscribers that use event ids behave
// like an EventSource: their argument "after" never changes.
func (s *subscriber) place() place {
	s.mu.Lock()
	defer s.mu.Unlock()
	first, at := s.truth.cursor(s.begins), s.at
	switch n := len(s.got); {
	case s.tally.connections == 0:
		return place{after: first}
	case s.resume == fromNow:
		return place{}
	case s.resume == tooEarly && n > 1:
		at = s.truth.cursor(int(s.got[n-2]))
	}
	if s.byID() {
		return place{first, at}
	}
	return place{after: at}
}

// byID reports whether the subscriber resumes with event ids.
func (s *subscriber) byID() bool { return s.peer.speaks.byID && !s.own }

// received records a block and the id of its event, which is empty if there is no event. A slow
// subscriber then waits.
func (s *subscriber) received(ctx context.Context, b block, id string) {
	now := time.Now()
	n, known := s.truth.place[b.ChainOrder]
	s.mu.Lock()
	if !known || b.ID != s.truth.blocks[n].Hash.String() {
		s.fail("received the block %q (%s), which the chain does not have", b.ChainOrder, b.ID)
		s.mu.Unlock()
		return
	}
	if b.Cursor != s.truth.cursor(n) {
		s.fail("block %q has the cursor %q", b.ChainOrder, b.Cursor)
	}
	if id != "" && (plain(id) != b.ChainOrder || !s.truth.isOwn(id)) {
		s.fail("event with the block %q has the id %q", b.ChainOrder, id)
	}
	s.got = append(s.got, int32(n))
	s.at = b.Cursor
	if id != "" && !s.own {
		s.at = id
	}
	s.tally.delivered++
	if at := s.truth.committed[n].Load(); at > 0 {
		s.tally.lag = max(s.tally.lag, now.Sub(time.Unix(0, at)))
	}
	s.mu.Unlock()
	raise(&s.world.newest, n)
	s.peer.slowDown(ctx, now)
}

// plain returns a cursor without its suffix. Cursors have a suffix after STREAM_GAP, and if the chain has
// an epoch.
func plain(cursor string) chaingql.Cursor {
	c, _, _ := strings.Cut(cursor, "!")
	c, _, _ = strings.Cut(c, "~")
	return chaingql.Cursor(c)
}

const epochChanged = "EPOCH_CHANGED"

// ended records how a subscription ended.
func (s *subscriber) ended(e end) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last, s.connected = e, false
	s.note("ended with code %q, cursor %q: %s", e.code, e.cursor, e.what)
	if e.cursor != "" && !s.truth.isOwn(e.cursor) {
		s.fail("received %s with the cursor %q, want one of the epoch %q", e.code, e.cursor, s.truth.epoch)
	}
	switch {
	case e.code == epochChanged && s.world.replacing.Load() && s.truth != s.world.next && e.cursor == "":
		s.startAgain()
	case e.code == "CURSOR_TOO_OLD":
		s.fail("at cursor %q: received CURSOR_TOO_OLD with the oldest cursor %q", s.at, e.oldest)
	case e.code != "" && e.code != "STREAM_GAP" && e.code != "SERVICE_UNAVAILABLE":
		s.fail("at cursor %q: received the unexpected error %s: %s", s.at, e.code, e.what)
	case e.code == "STREAM_GAP" && e.cursor == "":
		s.fail("at cursor %q: received STREAM_GAP without a cursor", s.at)
	case e.code == "STREAM_GAP":
		s.rewindTo(e.cursor)
	case e.code != "" && e.cursor == "" && s.at != "": // before the first block, the position is the empty cursor
		s.fail("received %s without a cursor: %s", e.code, e.what)
	case e.cursor != "":
		s.tally.withCursor++
		if last := plain(s.truth.cursor(s.lastBlock())); plain(e.cursor) < last {
			s.fail("after block %q: received the error %s with the older cursor %q", last, e.code, e.cursor)
		}
		if !s.own {
			s.at = e.cursor
		}
	}
}

// startAgain discards all blocks and cursors of the old chain, and continues before the first block of the new one. The
// caller holds s.mu.
func (s *subscriber) startAgain() {
	if due := s.matching(); len(s.got) > len(due) || !slices.Equal(s.got, due[:len(s.got)]) {
		s.fail("received other blocks of the old chain than the first %d that were due", len(s.got))
	}
	s.refused, s.directly = s.at, s.tally.connections == s.until
	s.truth, s.got, s.begins, s.at = s.world.next, nil, -1, ""
	s.goal = s.lastDue()
}

// rewindTo discards the blocks after a cursor.
func (s *subscriber) rewindTo(cursor string) {
	s.tally.withCursor++
	s.tally.gaps++
	if s.world.searching.Load() {
		s.tally.duringSearch++
	}
	s.rewinds = append(s.rewinds, rewind{plain(cursor), time.Now()})
	s.at = cursor
	for s.resume != keepBlocks && len(s.got) > 0 {
		n := len(s.got) - 1
		if s.truth.blocks[s.got[n]].Cursor <= chaingql.Cursor(cursor) {
			return
		}
		s.got = s.got[:n]
		s.tally.forgotten++
	}
}

// began records that the subscription has started at a position on a connection to a service.
func (s *subscriber) began(from place, service int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note("started at %+v on service %d", from, service)
	s.connected = true
	s.tally.connections++
	if s.resume != fromNow && len(s.got) > 0 {
		s.tally.resumed++
	}
	if service > s.service {
		s.excuseHoles(service)
	}
	s.service = service
}

// excuseHoles marks holes that no service could report to the subscriber. Its connection was cut before
// the old service could report them, and the new service does not know which blocks were sent. The
// caller holds s.mu.
func (s *subscriber) excuseHoles(service int) {
	if strings.Contains(s.last.what, shutdownText) {
		return
	}
	w := s.world
	w.source.mu.Lock()
	defer w.source.mu.Unlock()
	for _, h := range w.source.holes {
		if s.service <= h.replaced && h.replaced < service && plain(s.at) > h.before {
			s.excused[h] = true
		}
	}
}

const shutdownText = "Service is shutting down"

// matching returns the numbers of the blocks after the start that match the filter.
func (s *subscriber) matching() (numbers []int32) {
	for i := s.begins + 1; i < len(s.truth.blocks); i++ {
		if s.filter.matches(s.truth.blocks[i]) {
			numbers = append(numbers, int32(i))
		}
	}
	return numbers
}

// lastDue returns the number of the last block that matches the filter, or -1.
func (s *subscriber) lastDue() int32 {
	if all := s.matching(); len(all) > 0 {
		return all[len(all)-1]
	}
	return -1
}

// done reports whether the subscriber has received its last block. The caller holds s.mu.
func (s *subscriber) done() bool {
	return s.goal < 0 || len(s.got) > 0 && s.got[len(s.got)-1] >= s.goal
}
