package natschain_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/chaingql/chaingql"
	natschain "github.com/chaingql/chaingql/nats"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// A fakeStream simulates a stream that changes while a Backend reads it.
type fakeStream struct {
	sync.Mutex
	blocks []chaingql.Block // the message with sequence number n contains blocks[n-1]
	gone   int              // number of removed messages, which are the oldest ones
	missed func(seq int)    // called after a request for a missing message; may change the stream
	sent   func(seq int)    // called after each message of a page was sent; may change the stream

	leaderless atomic.Int32 // number of requests for the state that get an error
}

// A request is the payload of a request that a Backend sends to read a stream.
type request struct {
	Seq, Batch int
	Last       string `json:"last_by_subj"`
	Next       string `json:"next_by_subj"`
}

// newFakeStream returns an empty fakeStream and a Backend that reads from it.
func newFakeStream(t *testing.T) (*natschain.Backend, *fakeStream) {
	s := newBroker(t, func(o *server.Options) { o.JetStream = false })
	nc, err := nats.Connect(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	h := &fakeStream{missed: func(int) {}, sent: func(int) {}}
	for subject, answer := range map[string]func(m *nats.Msg, r request){
		"$JS.API.STREAM.MSG.GET.chain_blocks": func(m *nats.Msg, r request) { h.get(t, m, r) },
		"$JS.API.STREAM.INFO.chain_blocks":    nil,
		"$JS.API.DIRECT.GET.chain_blocks":     func(m *nats.Msg, r request) { h.page(nc, m, r.Seq, r.Batch) },
	} {
		_, err := nc.Subscribe(subject, func(m *nats.Msg) {
			if len(m.Data) == 0 { // a request for the state of the stream
				state := `{"created":"0001-01-01T00:00:00Z"}`
				if h.leaderless.Add(-1) >= 0 {
					state = `{"error":{"code":503,"err_code":10008,"description":"temporarily unavailable"}}`
				}
				_ = m.Respond([]byte(state))
				return
			}
			var r request
			if err := json.Unmarshal(m.Data, &r); err != nil {
				t.Error(err)
			}
			h.Lock()
			defer h.Unlock()
			answer(m, r)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return natschain.Bare(nc, nil), h
}

// payload returns the payload of a message, as a Writer would encode it. The argument place is the
// sequence number of the message.
func (h *fakeStream) payload(place int) []byte {
	prev := chaingql.Cursor("")
	if place > 1 {
		prev = h.blocks[place-2].Cursor
	}
	text := payloadOf(&h.blocks[place-1])
	return fmt.Appendf(text[:len(text)-1], `,"prev":%q}`, prev)
}

func (h *fakeStream) get(t *testing.T, m *nats.Msg, r request) {
	seq := r.Seq
	switch {
	case r.Last != "":
		seq = len(h.blocks)
	case r.Next != "":
		seq = max(seq, h.gone+1)
	}
	answer := map[string]any{"error": map[string]any{"code": 404, "err_code": 10037}}
	if seq > h.gone && seq <= len(h.blocks) {
		answer = map[string]any{"message": map[string]any{"subject": subjectOf(&h.blocks[seq-1]), "seq": seq,
			"data": h.payload(seq)}}
	} else {
		h.missed(seq)
	}
	text, err := json.Marshal(answer)
	if err != nil {
		t.Error(err)
	}
	_ = m.Respond(text)
}

func (h *fakeStream) page(nc *nats.Conn, m *nats.Msg, seq, batch int) {
	last := 0
	for n := 0; n < batch && max(seq, h.gone+1) <= len(h.blocks); n++ {
		seq = max(seq, h.gone+1)
		_ = nc.PublishMsg(&nats.Msg{Subject: m.Reply, Data: h.payload(seq), Header: nats.Header{
			"Nats-Subject": {subjectOf(&h.blocks[seq-1])}, "Nats-Sequence": {fmt.Sprint(seq)},
			"Nats-Last-Sequence": {fmt.Sprint(last)}, "Nats-Time-Stamp": {"2026-01-02T03:04:05Z"},
		}})
		h.sent(seq)
		last, seq = seq, seq+1
	}
	status := "204"
	if last == 0 {
		status = "404"
	}
	_ = nc.PublishMsg(&nats.Msg{Subject: m.Reply, Header: nats.Header{
		"Status": {status}, "Nats-Num-Pending": {"0"}, "Nats-Last-Sequence": {fmt.Sprint(last)},
	}})
}

// TestPageIsReadWhenStreamHasLeaderAgain reads a page while the cluster of the stream elects a leader.
func TestPageIsReadWhenStreamHasLeaderAgain(t *testing.T) {
	b, h := newFakeStream(t)
	h.blocks = blocks(5)
	h.leaderless.Store(2)
	expectPage(t, b, chaingql.BlocksQuery{First: 5}, h.blocks)
}

// TestPageIsCorrectIfStreamIsReplacedDuringRead replaces the stream during a read. The new stream is empty when
// the Backend requests the message of its cursor. At the next request, it has a message with that
// sequence number. Each response alone looks as if the stream were still the old one.
func TestPageIsCorrectIfStreamIsReplacedDuringRead(t *testing.T) {
	b, h := newFakeStream(t)
	all := blocks(20)
	h.Lock()
	h.blocks = all[:5]
	h.Unlock()
	if page, err := b.Blocks(context.Background(), chaingql.BlocksQuery{First: 5}); err != nil || len(page) != 5 {
		t.Fatalf("first page: got %v and error %v, want 5 blocks", page, err)
	}
	h.Lock()
	h.blocks = nil
	h.missed = func(seq int) {
		if seq == 5 {
			h.blocks = all[8:]
		}
	}
	h.Unlock()
	page, err := b.Blocks(context.Background(), chaingql.BlocksQuery{First: 3, After: all[4].Cursor})
	if err != nil || !slices.Equal(cursorsOf(page), cursorsOf(all[8:11])) {
		t.Errorf("page after the end of the old stream: got %v and error %v, want %v", cursorsOf(page), err,
			cursorsOf(all[8:11]))
	}
}

// TestPageHasNoGapIfBlocksArePrunedDuringRead removes the oldest 12 messages while the server sends a
// page. The page must not skip blocks: it must begin after the removed blocks, or fail.
func TestPageHasNoGapIfBlocksArePrunedDuringRead(t *testing.T) {
	all := blocks(20)
	for _, row := range []struct {
		q    chaingql.BlocksQuery
		want []chaingql.Block // nil if the cursor is too old
	}{
		{chaingql.BlocksQuery{First: 10}, all[12:]},
		{chaingql.BlocksQuery{Last: 18}, all[12:]},
		{chaingql.BlocksQuery{First: 10, After: all[0].Cursor}, nil},
		{chaingql.BlocksQuery{Last: 18, After: all[0].Cursor}, nil},
		{chaingql.BlocksQuery{First: 5, After: all[13].Cursor}, all[14:19]},
	} {
		b, h := newFakeStream(t)
		h.Lock()
		h.blocks = all
		h.sent = func(seq int) {
			if seq == 4 {
				h.gone = 12
			}
		}
		h.Unlock()
		page, err := b.Blocks(context.Background(), row.q)
		if errors.Is(err, chaingql.ErrCursorTooOld) != (row.want == nil) || row.want != nil && err != nil ||
			!slices.Equal(cursorsOf(page), cursorsOf(row.want)) {
			t.Errorf("page %+v: got %v and error %v, want %v (none: ErrCursorTooOld)", row.q, cursorsOf(page), err,
				cursorsOf(row.want))
		}
	}
}
