package chaos_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/chaingql/chaingql"
)

// resuming is where a subscriber goes on after an end.
type resuming int

const (
	asDocumented resuming = iota
	fromNow               // wrong: blocks are lost
	tooEarly              // wrong, at the block before its last: that one comes twice
	keeping               // wrong, it keeps its blocks after STREAM_GAP: they come twice
)

// An end is how a subscription ended, or the connection below it.
type end struct {
	what   string // for people
	code   string // of the error that was told; "" if nothing was
	cursor string // that was told; "" if none was
	oldest string // that a CURSOR_TOO_OLD told
}

// place is where a subscription begins.
type place struct {
	after string // the argument
	last  string // Last-Event-ID
}

// A subscriber is one subscription, however often it has to be started again. It
// does what docs/protocol.md demands of clients, and nothing more: it forgets
// blocks only after STREAM_GAP.
type subscriber struct {
	name   string
	peer   *peer
	filter filter
	resume resuming
	own    bool  // goes on after its own last block where it may, else from the cursors that it is told
	begins int   // the number of the block behind which it begins
	goal   int32 // that of the last one it gets; -1 for none
	world  *world
	id     string // of the operation

	mu        sync.Mutex
	got       []int32 // numbers of the blocks that came; what was rolled back is forgotten
	at        string  // the cursor to go on from
	service   int     // that it was connected to last
	tally     tally
	connected bool
	last      end
	wrong     string // what must not happen
	sentBack  []sentBack
	excused   map[*hole]bool // it could not be told of these
	journal   []entry
}

// sentBack is one STREAM_GAP.
type sentBack struct {
	cursor chaingql.Cursor // without its suffix
	when   time.Time
}

// An entry is what happened to a subscriber when it had come to a block.
type entry struct {
	block int
	when  time.Time
	what  string
}

// note keeps a journal of a subscriber, which is locked.
func (s *subscriber) note(format string, args ...any) {
	s.journal = append(s.journal, entry{s.stands(), time.Now(), fmt.Sprintf(format, args...)})
}

// stands is the number of the last block that a subscriber, which is locked, has.
func (s *subscriber) stands() int {
	if n := len(s.got); n > 0 {
		return int(s.got[n-1])
	}
	return s.begins
}

// fail notes what must not happen to a subscriber, which is locked.
func (s *subscriber) fail(format string, args ...any) {
	if s.wrong == "" {
		s.wrong = fmt.Sprintf(format, args...)
	}
}

// A tally is what happened to a subscriber.
type tally struct {
	delivered   int
	connections int
	resumed     int // connections that began behind a block that had come before
	told        int // ends that were told with a cursor
	gaps        int // of them, those with STREAM_GAP
	meanwhile   int // of these, those that came while the service searched
	forgotten   int // blocks that came again because of them
	lag         time.Duration
}

func (t *tally) add(o tally) {
	t.delivered, t.connections, t.resumed = t.delivered+o.delivered, t.connections+o.connections, t.resumed+o.resumed
	t.told, t.gaps, t.meanwhile = t.told+o.told, t.gaps+o.gaps, t.meanwhile+o.meanwhile
	t.forgotten = t.forgotten + o.forgotten
}

// place is where the next subscription begins. Those who go on from the cursors
// of events do it as an EventSource: the argument remains the same.
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

// byID tells whether a subscriber goes on from the ids of events.
func (s *subscriber) byID() bool { return s.peer.speaks.byID && !s.own }

// took takes down a block that came, with the id of its event if it has one. A
// slow subscriber waits before it reads on.
func (s *subscriber) took(ctx context.Context, cursor, id string) {
	now, w := time.Now(), s.world
	n, known := w.truth.place[chaingql.Cursor(cursor)]
	s.mu.Lock()
	if !known {
		s.fail("got a block with cursor %q, which no block has", cursor)
		s.mu.Unlock()
		return
	}
	if id != "" && string(plain(id)) != cursor {
		s.fail("the event of block %q has the id %q", cursor, id)
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
	s.peer.dawdle(ctx, now)
}

// plain is a cursor without the suffix that it may have after STREAM_GAP.
func plain(cursor string) chaingql.Cursor {
	c, _, _ := strings.Cut(cursor, "!")
	return chaingql.Cursor(c)
}

// ended takes down how a subscription ended.
func (s *subscriber) ended(e end) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last, s.connected = e, false
	s.note("ends: %s %s %s", e.code, e.cursor, e.what)
	switch {
	case e.code == "CURSOR_TOO_OLD":
		s.fail("at cursor %q it was told CURSOR_TOO_OLD with oldest %q", s.at, e.oldest)
	case e.code != "" && e.code != "STREAM_GAP" && e.code != "SERVICE_UNAVAILABLE":
		s.fail("at cursor %q it was told %s: %s", s.at, e.code, e.what)
	case e.code == "STREAM_GAP" && e.cursor == "":
		s.fail("at cursor %q it was told STREAM_GAP without a cursor", s.at)
	case e.code == "STREAM_GAP":
		s.goBack(e.cursor)
	case e.code != "" && e.cursor == "":
		s.fail("it was told %s without a cursor: %s", e.code, e.what)
	case e.cursor != "":
		s.tally.told++
		if last := s.world.truth.blocks[s.stands()].Cursor; plain(e.cursor) < last {
			s.fail("it has block %q, and was told %s with cursor %q", last, e.code, e.cursor)
		}
		if !s.own {
			s.at = e.cursor
		}
	}
}

// goBack discards the blocks from behind a cursor.
func (s *subscriber) goBack(cursor string) {
	s.tally.told++
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

// began takes down that a subscription was started on a connection to a service.
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
		s.survive(service)
	}
	s.service = service
}

// survive excuses what a subscriber cannot know, because its line was cut before
// the old service could tell it: a new one knows nothing of what was sent.
func (s *subscriber) survive(service int) {
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

// matching are the numbers of the blocks that it asks for.
func (s *subscriber) matching() (numbers []int32) {
	for i := s.begins + 1; i < len(s.world.truth.blocks); i++ {
		if s.filter.matches(s.world.truth.blocks[i]) {
			numbers = append(numbers, int32(i))
		}
	}
	return numbers
}

// done tells whether a subscriber, which is locked, has its last block.
func (s *subscriber) done() bool {
	return s.goal < 0 || len(s.got) > 0 && s.got[len(s.got)-1] >= s.goal
}
