package chaos_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/chaingql/chaingql"
)

// document is what all subscribers send. Whoever wants to resume asks for
// chain_order.
const document = `subscription($filter: BlockFilter, $after: String) {
  blocks(filter: $filter, after: $after) { id seq_no workchain_id shard gen_utime chain_order }
}`

// resuming is where a subscriber goes on after an end.
type resuming int

const (
	byCursor resuming = iota // behind the last block it had: as documented
	fromNow                  // wrong: blocks are lost
	tooEarly                 // wrong, at the block before its last: that one comes twice
)

// An end is how a connection, or a subscription on it, ended.
type end struct {
	what   string // for people
	code   string // of the error that was told; "" where nothing was
	cursor string // that was told; "" where none was
	oldest string // that a CURSOR_TOO_OLD told
}

// A transport opens one connection, subscribes, hands each block's cursor to
// the subscriber, and returns when that has ended.
type transport struct {
	name      string
	subscribe func(ctx context.Context, s *subscriber, from place) end
}

// A place is where a subscription begins. Both "": from now on.
type place struct{ first, last string } // first: the argument after; last: the last cursor that came, where one did

var transports = []transport{
	{"graphql-ws", overLegacySocket},
	{"graphql-transport-ws", overModernSocket},
	{"event stream", overEventStream},
}

// A subscriber reads one subscription, however often it has to come back.
type subscriber struct {
	name   string
	speaks transport
	filter filter
	slow   bool
	resume resuming
	begins int   // the number of the block behind which it begins
	goal   int32 // that of the last one it gets; -1 for none
	world  *world
	url    string
	client *http.Client
	rng    *rand.Rand // its own goroutine's

	mu        sync.Mutex
	got       []int32 // numbers of the blocks that came; what was rolled back is forgotten
	at        chaingql.Cursor
	tally     tally
	connected bool
	last      end
	wrong     string // what must not happen
	next      time.Time
	journal   []entry
}

// An entry is what happened to a subscriber when it had come to a block.
type entry struct {
	block int
	when  time.Time
	what  string
}

// note keeps a journal of a subscriber, which is locked.
func (s *subscriber) note(format string, args ...any) {
	at := s.begins
	if n := len(s.got); n > 0 {
		at = int(s.got[n-1])
	}
	s.journal = append(s.journal, entry{at, time.Now(), fmt.Sprintf(format, args...)})
}

// A tally is what happened to a subscriber.
type tally struct {
	delivered   int
	connections int
	resumed     int // connections that began behind a block that had come before
	told        int // ends that were told with a cursor
	gaps        int // of them, those with STREAM_GAP
	forgotten   int // blocks that came again because of them
	lag         time.Duration
}

func newSubscriber(w *world, id int, slow bool, t transport, f filter, begins int, resume resuming) *subscriber {
	p := w.wide
	if slow {
		p = w.narrow
	}
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, network, addr)
		if err == nil && slow {
			err = conn.(*net.TCPConn).SetReadBuffer(narrowBuffer)
		}
		return conn, err
	}
	pace := "quick"
	if slow {
		pace = "slow"
	}
	s := &subscriber{
		name:   fmt.Sprintf("%d (%s, %s, %s)", id, pace, t.name, f.name),
		speaks: t, filter: f, slow: slow, resume: resume, begins: begins, world: w,
		url:    "http://" + p.addr() + "/chaos/graphql",
		client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: dial}},
		rng:    rand.New(rand.NewPCG(w.seed, uint64(1000+id))),
		at:     w.truth.blocks[begins].Cursor,
		goal:   -1,
	}
	if all := s.expected(); len(all) > 0 {
		s.goal = all[len(all)-1]
	}
	return s
}

// read reads until ctx is done, and comes back after each end.
func (s *subscriber) read(ctx context.Context) {
	defer s.client.CloseIdleConnections()
	for ctx.Err() == nil {
		e := s.speaks.subscribe(ctx, s, s.place())
		if ctx.Err() != nil {
			return
		}
		s.ended(e)
		pause(ctx, time.Duration(5+s.rng.IntN(60))*time.Millisecond)
	}
}

// place is where the next connection begins.
func (s *subscriber) place() place {
	s.mu.Lock()
	defer s.mu.Unlock()
	begin := string(s.world.truth.blocks[s.begins].Cursor)
	if s.tally.connections == 0 {
		return place{first: begin}
	}
	switch s.resume {
	case fromNow:
		return place{}
	case tooEarly:
		if n := len(s.got); n > 1 {
			return place{first: begin, last: string(s.world.truth.blocks[s.got[n-2]].Cursor)}
		}
	}
	return place{first: begin, last: string(s.at)}
}

// took takes down a block that came. A slow subscriber waits before it reads on.
func (s *subscriber) took(ctx context.Context, cursor string) {
	now, w := time.Now(), s.world
	n, known := w.truth.place[chaingql.Cursor(cursor)]
	s.mu.Lock()
	if !known {
		s.wrong = fmt.Sprintf("got a block with cursor %q, which no block has", cursor)
		s.mu.Unlock()
		return
	}
	s.got = append(s.got, int32(n))
	s.at = chaingql.Cursor(cursor)
	s.tally.delivered++
	if at := w.truth.committed[n].Load(); at > 0 {
		s.tally.lag = max(s.tally.lag, now.Sub(time.Unix(0, at)))
	}
	s.mu.Unlock()
	w.saw(n)
	if s.slow {
		// What it was late is not made good: it never reads quicker than this.
		s.next = later(s.next.Add(w.slowness()), now)
		pause(ctx, s.next.Sub(now))
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// ended takes down how a connection ended. That is a documented client: it goes
// on from the cursor told, forgetting what it had from behind that, and where
// nothing was told behind the last block that it had.
func (s *subscriber) ended(e end) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last, s.connected = e, false
	s.note("ends: %s %s %s", e.code, e.cursor, e.what)
	switch {
	case e.code == "CURSOR_TOO_OLD":
		s.wrong = fmt.Sprintf("at cursor %q it was told CURSOR_TOO_OLD with oldest %q", s.at, e.oldest)
	case e.code != "" && e.code != "STREAM_GAP" && e.code != "SERVICE_UNAVAILABLE":
		s.wrong = fmt.Sprintf("at cursor %q it was told %s: %s", s.at, e.code, e.what)
	case e.code == "STREAM_GAP" && e.cursor == "":
		s.wrong = fmt.Sprintf("at cursor %q it was told STREAM_GAP without a cursor", s.at)
	case e.cursor != "":
		s.tally.told++
		if e.code == "STREAM_GAP" {
			s.tally.gaps++
		}
		s.at = chaingql.Cursor(e.cursor)
		for len(s.got) > 0 && s.world.truth.blocks[s.got[len(s.got)-1]].Cursor > s.at {
			s.got = s.got[:len(s.got)-1]
			s.tally.forgotten++
		}
	}
}

// connects takes down that a connection stands.
func (s *subscriber) connects(from place) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note("begins %+v", from)
	s.connected = true
	s.tally.connections++
	if s.resume == byCursor && len(s.got) > 0 {
		s.tally.resumed++
	}
}

// expected are the numbers of the blocks that it must get.
func (s *subscriber) expected() (numbers []int32) {
	for i := s.begins + 1; i < len(s.world.truth.blocks); i++ {
		if s.filter.matches(s.world.truth.blocks[i]) {
			numbers = append(numbers, int32(i))
		}
	}
	return numbers
}

// A verdict is in what a subscriber's blocks are not as they should be.
type verdict struct{ lost, twice, disordered, strange int }

// judge compares what came with the truth.
func judge(got, expected []int32) (v verdict) {
	seen := make(map[int32]bool, len(got))
	newest := int32(-1)
	for _, n := range got {
		switch {
		case seen[n]:
			v.twice++
		case n < newest:
			v.disordered++
		}
		seen[n], newest = true, max(newest, n)
	}
	for _, n := range expected {
		if !seen[n] {
			v.lost++
		}
		delete(seen, n)
	}
	v.strange = len(seen)
	return v
}

// An answer is a GraphQL answer to a subscription, an error alone, or several.
type answer struct {
	Data   struct{ Blocks block }
	Errors []trouble
}

type block struct {
	ChainOrder string `json:"chain_order"`
}

type trouble struct {
	Message    string
	Extensions struct{ Code, Cursor, Oldest string }
}

func (t trouble) end(what string) end {
	return end{what + ": " + t.Message, t.Extensions.Code, t.Extensions.Cursor, t.Extensions.Oldest}
}

// take takes an answer, and tells whether it was the end.
func (s *subscriber) take(ctx context.Context, raw []byte) (end, bool) {
	var a answer
	if err := json.Unmarshal(raw, &a); err != nil {
		return end{what: "half an answer"}, true // a line that was cut may hand that on
	}
	if len(a.Errors) > 0 {
		return a.Errors[0].end("error"), true
	}
	s.took(ctx, a.Data.Blocks.ChainOrder)
	return end{}, false
}
