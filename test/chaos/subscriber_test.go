package chaos_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/chaingql/chaingql"
)

// resuming selects how a subscriber resumes after an end.
type resuming int

const (
	asDocumented resuming = iota
	fromNow               // wrong: loses blocks
	tooEarly              // wrong: resumes before its last block, so that it receives that block twice
	keeping               // wrong: keeps its blocks after STREAM_GAP, so that it receives them twice
)

// An end describes how a subscription or its connection ended.
type end struct {
	what   string // description for logs
	code   string // code of the error; "" if there was none
	cursor string // cursor of the error; "" if there was none
	oldest string // oldest cursor in CURSOR_TOO_OLD
}

// place is the start of a subscription.
type place struct {
	after string // argument after
	last  string // Last-Event-ID
}

// A subscriber is one subscription, which is restarted after each end. It does only what
// docs/protocol.md requires of clients. In particular it discards blocks only after STREAM_GAP.
type subscriber struct {
	name   string
	peer   *peer
	filter filter
	resume resuming
	own    bool  // resumes after its own last block if permitted, otherwise from received cursors
	begins int   // starts after this block
	goal   int32 // the last block that matches; -1 for none
	world  *world
	id     string // operation id

	mu        sync.Mutex
	got       []int32 // numbers of the received blocks, without discarded ones
	at        string  // cursor for resuming
	service   int     // number of the last service
	tally     tally
	connected bool
	last      end
	wrong     string // first protocol violation
	sentBack  []sentBack
	excused   map[*hole]bool // holes about which no service could inform it
	journal   []entry
}

// sentBack records one STREAM_GAP.
type sentBack struct {
	cursor chaingql.Cursor // without suffix
	when   time.Time
}

// An entry is an event in the life of a subscriber, with its last block at that time.
type entry struct {
	block int
	when  time.Time
	what  string
}

// note adds to the journal. The caller holds s.mu.
func (s *subscriber) note(format string, args ...any) {
	s.journal = append(s.journal, entry{s.lastBlock(), time.Now(), fmt.Sprintf(format, args...)})
}

// lastBlock returns the number of the last received block. The caller holds s.mu.
func (s *subscriber) lastBlock() int {
	if n := len(s.got); n > 0 {
		return int(s.got[n-1])
	}
	return s.begins
}

// fail records the first violation. The caller holds s.mu.
func (s *subscriber) fail(format string, args ...any) {
	if s.wrong == "" {
		s.wrong = fmt.Sprintf(format, args...)
	}
}

// A tally counts events of a subscriber.
type tally struct {
	delivered   int
	connections int
	resumed     int // connections that resumed after a received block
	withCursor  int // ends with a cursor
	gaps        int // ends with STREAM_GAP
	meanwhile   int // STREAM_GAP while the service searched
	forgotten   int // blocks discarded after STREAM_GAP
	lag         time.Duration
}

func (t *tally) add(o tally) {
	t.delivered, t.connections, t.resumed = t.delivered+o.delivered, t.connections+o.connections, t.resumed+o.resumed
	t.withCursor, t.gaps, t.meanwhile = t.withCursor+o.withCursor, t.gaps+o.gaps, t.meanwhile+o.meanwhile
	t.forgotten = t.forgotten + o.forgotten
}

// place returns the start of the next subscription. Subscribers that use event ids behave like an
// EventSource: the argument after never changes.
func (s *subscriber) place() place {
	s.mu.Lock()
	defer s.mu.Unlock()
	first, at := string(s.world.truth.blocks[s.begins].Cursor), s.at
	switch n := len(s.got); {
	case s.tally.connections == 0:
		return place{after: first}
	case s.resume == fromNow:
		return place{}
	case s.resume == tooEarly && n > 1:
		at = string(s.world.truth.blocks[s.got[n-2]].Cursor)
	}
	if s.byID() {
		return place{first, at}
	}
	return place{after: at}
}

// byID reports whether the subscriber resumes with event ids.
func (s *subscriber) byID() bool { return s.peer.speaks.byID && !s.own }

// received records a block and the id of its event, if any. A slow subscriber then waits.
func (s *subscriber) received(ctx context.Context, cursor, id string) {
	now, w := time.Now(), s.world
	n, known := w.truth.place[chaingql.Cursor(cursor)]
	s.mu.Lock()
	if !known {
		s.fail("received unknown cursor %q", cursor)
		s.mu.Unlock()
		return
	}
	if id != "" && string(plain(id)) != cursor {
		s.fail("the event of block %q has id %q", cursor, id)
	}
	s.got = append(s.got, int32(n))
	s.at = cursor
	if id != "" && !s.own {
		s.at = id
	}
	s.tally.delivered++
	if at := w.truth.committed[n].Load(); at > 0 {
		s.tally.lag = max(s.tally.lag, now.Sub(time.Unix(0, at)))
	}
	s.mu.Unlock()
	raise(&w.newest, n)
	s.peer.slowDown(ctx, now)
}

// plain returns a cursor without the suffix that it may have after STREAM_GAP.
func plain(cursor string) chaingql.Cursor {
	c, _, _ := strings.Cut(cursor, "!")
	return chaingql.Cursor(c)
}

// ended records how a subscription ended.
func (s *subscriber) ended(e end) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last, s.connected = e, false
	s.note("ends: %s %s %s", e.code, e.cursor, e.what)
	switch {
	case e.code == "CURSOR_TOO_OLD":
		s.fail("at cursor %q: CURSOR_TOO_OLD with oldest %q", s.at, e.oldest)
	case e.code != "" && e.code != "STREAM_GAP" && e.code != "SERVICE_UNAVAILABLE":
		s.fail("at cursor %q: error %s: %s", s.at, e.code, e.what)
	case e.code == "STREAM_GAP" && e.cursor == "":
		s.fail("at cursor %q: STREAM_GAP without a cursor", s.at)
	case e.code == "STREAM_GAP":
		s.goBack(e.cursor)
	case e.code != "" && e.cursor == "":
		s.fail("%s without a cursor: %s", e.code, e.what)
	case e.cursor != "":
		s.tally.withCursor++
		if last := s.world.truth.blocks[s.lastBlock()].Cursor; plain(e.cursor) < last {
			s.fail("after block %q: error %s with older cursor %q", last, e.code, e.cursor)
		}
		if !s.own {
			s.at = e.cursor
		}
	}
}

// goBack discards the blocks after a cursor.
func (s *subscriber) goBack(cursor string) {
	s.tally.withCursor++
	s.tally.gaps++
	if s.world.searching.Load() {
		s.tally.meanwhile++
	}
	s.sentBack = append(s.sentBack, sentBack{plain(cursor), time.Now()})
	s.at = cursor
	for s.resume != keeping && len(s.got) > 0 {
		n := len(s.got) - 1
		if s.world.truth.blocks[s.got[n]].Cursor <= chaingql.Cursor(cursor) {
			return
		}
		s.got = s.got[:n]
		s.tally.forgotten++
	}
}

// began records a new subscription on a connection to a service.
func (s *subscriber) began(from place, service int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note("begins %+v, service %d", from, service)
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

// excuseHoles excuses holes of which the subscriber cannot know: its connection was cut before the old
// service could report them, and the new service does not know which blocks were sent.
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

// matching returns the numbers of the blocks that match the filter.
func (s *subscriber) matching() (numbers []int32) {
	for i := s.begins + 1; i < len(s.world.truth.blocks); i++ {
		if s.filter.matches(s.world.truth.blocks[i]) {
			numbers = append(numbers, int32(i))
		}
	}
	return numbers
}

// done reports whether the subscriber has its last block. The caller holds s.mu.
func (s *subscriber) done() bool {
	return s.goal < 0 || len(s.got) > 0 && s.got[len(s.got)-1] >= s.goal
}
