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

// A peer is a client with one connection at a time. On a socket, it may have several subscriptions, one of
// which may select a field that the host added.
type peer struct {
	speaks transport
	world  *world
	subs   []*subscriber
	ticks  bool // also subscribes to the field tick, which the host added
	slow   bool
	steady bool // the connection is never cut, and the session does not expire
	once   bool // leaves after EPOCH_CHANGED
	url    string
	client *http.Client
	rng    *rand.Rand // used only by the goroutine of the peer

	next time.Time // time of the next read if the peer is slow
	ids  int       // number of operation ids that have been used
}

// A peerConfig holds the properties of a peer.
type peerConfig struct {
	speaks     transport
	filters    []filter // one for each subscription
	begins     int      // number of the block after which it starts
	slow       bool
	expiring   bool // sessions expire within a second
	steady     bool // the connection is never cut
	own, ticks bool
	resume     resuming
}

func newPeer(w *world, id int, c peerConfig) *peer {
	addr, project := w.wide.addr(), "chaos"
	switch {
	case c.steady:
		addr = w.host.addr
	case c.slow:
		addr = w.narrow.addr()
	}
	if c.expiring {
		project = expiring
	}
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, network, addr)
		if err == nil && c.slow {
			err = conn.(*net.TCPConn).SetReadBuffer(narrowBuffer)
		}
		return conn, err
	}
	one := &peer{
		speaks: c.speaks, world: w, ticks: c.ticks, slow: c.slow, steady: c.steady && !c.expiring,
		url:    "http://" + addr + "/" + project + "/graphql",
		client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: dial}},
		rng:    rand.New(rand.NewPCG(w.seed, uint64(1000+id))),
	}
	for i, f := range c.filters {
		s := &subscriber{
			name:  fmt.Sprintf("%d.%d (%s, %s%s)", id, i, c.speaks.name, f.name, c.traits()),
			peer:  one,
			world: w, truth: w.truth, filter: f, resume: c.resume, own: c.own, begins: c.begins,
			at: w.truth.cursor(c.begins), excused: map[*hole]bool{},
		}
		s.goal = s.lastDue()
		one.subs = append(one.subs, s)
	}
	return one
}

// traits describes the properties of a peer, for its name.
func (c peerConfig) traits() (all string) {
	for _, t := range []struct {
		has  bool
		name string
	}{
		{c.slow, "slow"}, {c.steady, "steady"}, {c.expiring, "expiring"}, {c.own, "resumes from its blocks"},
		{c.ticks, "with ticks"},
	} {
		if t.has {
			all += ", " + t.name
		}
	}
	return all
}

// read connects and subscribes. It repeats this after each end of the connection, until ctx is done.
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

// lost records the end of all subscriptions that were still running when the connection ended.
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

// slowDown waits if the peer is slow. After a late read, the next read is not earlier than usual.
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

// wrong records a protocol violation on the connection.
func (p *peer) wrong(format string, args ...any) {
	s := p.subs[0]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail(format, args...)
}

// sub returns the subscription with the given operation id, or nil.
func (p *peer) sub(id string) *subscriber {
	for _, s := range p.subs {
		if s.id == id {
			return s
		}
	}
	return nil
}

// closing handles a connection_error, which reports the end of all operations on the connection.
func (p *peer) closing(t graphqlError) {
	code, at := t.Extensions.Code, t.Extensions.Cursor
	if code != "STREAM_GAP" && code != "SERVICE_UNAVAILABLE" && code != epochChanged {
		p.wrong("connection_error has the unexpected code %q: %s", code, t.Message)
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
	case code == epochChanged:
		for _, s := range p.subs {
			if s.reads(p.world.truth) {
				s.ended(t.end("connection_error"))
			}
		}
	case len(p.subs) == 1 && !p.ticks && at != "": // if there is no cursor, the subscription had not started
		p.subs[0].ended(t.end("connection_error"))
	case code == "STREAM_GAP": // only one subscription had started, but the message does not identify it
		for _, s := range p.subs {
			if plain(at) <= plain(s.position()) {
				s.ended(t.end("connection_error"))
			}
		}
	}
}

// check checks that the code and the cursor of a connection_error match those of the listed operations.
func (p *peer) check(t graphqlError) {
	code, lowest := "SERVICE_UNAVAILABLE", ""
	ops := t.Extensions.Operations
	for _, op := range ops {
		if op.Code == "STREAM_GAP" {
			code = op.Code
		}
		if op.Cursor != "" && (lowest == "" || op.Cursor < lowest) {
			lowest = op.Cursor
		}
		if s := p.sub(op.ID); s == nil && op.Cursor != "" || s != nil && s.position() != "" && op.Cursor == "" {
			p.wrong("connection_error lists the operation %q with the cursor %q", op.ID, op.Cursor)
		}
	}
	if len(ops) > 0 && (code != t.Extensions.Code || lowest != t.Extensions.Cursor) {
		p.wrong("connection_error has code %s and cursor %q, but lists the operations %+v",
			t.Extensions.Code, t.Extensions.Cursor, ops)
	}
}

// position returns the cursor from which the subscriber would resume.
func (s *subscriber) position() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at
}

// reads reports whether the subscriber reads this chain.
func (s *subscriber) reads(t *truth) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.truth == t
}

// A response is one result of a subscription.
type response struct {
	Data   struct{ Blocks block }
	Errors []graphqlError
}

type block struct {
	ID         string
	ChainOrder chaingql.Cursor `json:"chain_order"`
	Cursor     string
}

type graphqlError struct {
	Message    string
	Extensions struct {
		Code, Cursor, Oldest string
		Operations           []struct{ ID, Code, Cursor string }
	}
}

func (t graphqlError) end(what string) end {
	return end{what + ": " + t.Message, t.Extensions.Code, t.Extensions.Cursor, t.Extensions.Oldest}
}
