package chaos_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"time"

	"github.com/chaingql/chaingql"
)

// A peer is a client with one connection at a time. Over a socket it may have several
// subscriptions, one of them to a field of the host.
type peer struct {
	speaks transport
	world  *world
	subs   []*subscriber
	ticks  bool // also subscribes to the host's field
	slow   bool
	url    string
	client *http.Client
	rng    *rand.Rand // used only by its goroutine

	next time.Time // time of the next read of a slow peer
	ids  int
}

// A peerConfig holds the properties of a peer.
type peerConfig struct {
	speaks      transport
	filters     []filter // one subscription each
	begins      int
	slow, brief bool // brief: its sessions expire soon
	steady      bool // its connection is never cut
	own, ticks  bool
	resume      resuming
}

func newPeer(w *world, id int, c peerConfig) *peer {
	addr, project := w.wide.addr(), "chaos"
	switch {
	case c.steady:
		addr = w.host.addr
	case c.slow:
		addr = w.narrow.addr()
	}
	if c.brief {
		project = brief
	}
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, network, addr)
		if err == nil && c.slow {
			err = conn.(*net.TCPConn).SetReadBuffer(narrowBuffer)
		}
		return conn, err
	}
	one := &peer{
		speaks: c.speaks, world: w, ticks: c.ticks, slow: c.slow,
		url:    "http://" + addr + "/" + project + "/graphql",
		client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: dial}},
		rng:    rand.New(rand.NewPCG(w.seed, uint64(1000+id))),
	}
	for i, f := range c.filters {
		s := &subscriber{
			name:  fmt.Sprintf("%d.%d (%s, %s%s)", id, i, c.speaks.name, f.name, c.traits()),
			peer:  one,
			world: w, filter: f, resume: c.resume, own: c.own, begins: c.begins, goal: -1,
			at: string(w.truth.blocks[c.begins].Cursor), excused: map[*hole]bool{},
		}
		if all := s.matching(); len(all) > 0 {
			s.goal = all[len(all)-1]
		}
		one.subs = append(one.subs, s)
	}
	return one
}

func (c peerConfig) traits() (all string) {
	for _, t := range []struct {
		has  bool
		name string
	}{
		{c.slow, "slow"}, {c.steady, "steady"}, {c.brief, "brief"}, {c.own, "by its own blocks"}, {c.ticks, "with ticks"},
	} {
		if t.has {
			all += ", " + t.name
		}
	}
	return all
}

// read connects and subscribes until ctx is done, again after each end.
func (p *peer) read(ctx context.Context) {
	defer p.client.CloseIdleConnections()
	for ctx.Err() == nil {
		what := p.speaks.connect(ctx, p)
		if ctx.Err() != nil {
			return
		}
		p.lost(what)
		pause(ctx, time.Duration(5+p.rng.IntN(60))*time.Millisecond)
	}
}

// lost ends the subscriptions that were still running when the connection ended.
func (p *peer) lost(what string) {
	for _, s := range p.subs {
		s.mu.Lock()
		runs := s.connected
		s.mu.Unlock()
		if runs {
			s.ended(end{what: what})
		}
	}
}

// slowDown waits if the peer is slow. A late read does not make the next one earlier.
func (p *peer) slowDown(ctx context.Context, now time.Time) {
	if p.slow {
		p.next = later(p.next.Add(p.world.slowness()), now)
		pause(ctx, p.next.Sub(now))
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// wrong records a protocol violation of the connection.
func (p *peer) wrong(format string, args ...any) {
	s := p.subs[0]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail(format, args...)
}

// sub returns the subscription with an operation id, or nil.
func (p *peer) sub(id string) *subscriber {
	for _, s := range p.subs {
		if s.id == id {
			return s
		}
	}
	return nil
}

// closing handles a connection_error, which reports the ends of all operations.
func (p *peer) closing(t trouble) {
	code, at := t.Extensions.Code, t.Extensions.Cursor
	if code != "STREAM_GAP" && code != "SERVICE_UNAVAILABLE" {
		p.wrong("connection_error with code %q: %s", code, t.Message)
		return
	}
	ops := t.Extensions.Operations
	p.check(t)
	switch {
	case len(ops) > 0:
		for _, op := range ops {
			if s := p.sub(op.ID); s != nil {
				s.ended(end{t.Message, op.Code, op.Cursor, ""})
			}
		}
	case len(p.subs) == 1 && !p.ticks && at != "": // without a cursor the subscription had not started
		p.subs[0].ended(t.end("connection_error"))
	case code == "STREAM_GAP": // applies to the only started subscription, which is not identified
		for _, s := range p.subs {
			if plain(at) <= plain(s.position()) {
				s.ended(t.end("connection_error"))
			}
		}
	}
}

// check compares the fields of a connection_error with those of its operations.
func (p *peer) check(t trouble) {
	code, lowest := "SERVICE_UNAVAILABLE", ""
	ops := t.Extensions.Operations
	for _, op := range ops {
		if op.Code == "STREAM_GAP" {
			code = op.Code
		}
		if op.Cursor != "" && (lowest == "" || op.Cursor < lowest) {
			lowest = op.Cursor
		}
		if isBlocks := p.sub(op.ID) != nil; isBlocks == (op.Cursor == "") {
			p.wrong("connection_error lists operation %q with cursor %q", op.ID, op.Cursor)
		}
	}
	if len(ops) > 0 && (code != t.Extensions.Code || lowest != t.Extensions.Cursor) {
		p.wrong("connection_error has code %s, cursor %q, but its operations %+v",
			t.Extensions.Code, t.Extensions.Cursor, ops)
	}
}

// position returns the cursor from which the subscriber would resume.
func (s *subscriber) position() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at
}

// An answer is a response to a subscription.
type answer struct {
	Data   struct{ Blocks block }
	Errors []trouble
}

type block struct {
	ChainOrder chaingql.Cursor `json:"chain_order"`
}

type trouble struct {
	Message    string
	Extensions struct {
		Code, Cursor, Oldest string
		Operations           []struct{ ID, Code, Cursor string }
	}
}

func (t trouble) end(what string) end {
	return end{what + ": " + t.Message, t.Extensions.Code, t.Extensions.Cursor, t.Extensions.Oldest}
}
