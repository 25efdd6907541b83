package natschain_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/chaingql/chaingql"
	natschain "github.com/chaingql/chaingql/nats"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// TestStreamThatGrowsBetweenTwoAnswersIsNotTakenForTheOld has a stream made anew
// that is empty when the message of a cursor is asked for, and has one in that
// place, and more, when the next is: nothing seems to have gone.
func TestStreamThatGrowsBetweenTwoAnswersIsNotTakenForTheOld(t *testing.T) {
	s := newBroker(t, func(o *server.Options) { o.JetStream = false })
	nc, err := nats.Connect(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	all := blocks(20)
	var stream atomic.Pointer[[]chaingql.Block]
	holds := func(blocks []chaingql.Block) { stream.Store(&blocks) }
	var grow atomic.Bool
	get := func(m *nats.Msg) {
		var r struct {
			Seq        int
			Last, Next string
		}
		if err := json.Unmarshal(m.Data, &r); err != nil {
			t.Error(err)
		}
		held := *stream.Load()
		if r.Seq == 0 {
			r.Seq = len(held) // the newest
		}
		answer := map[string]any{"error": map[string]any{"code": 404, "err_code": 10037}}
		if r.Seq > 0 && r.Seq <= len(held) {
			b := &held[r.Seq-1]
			answer = map[string]any{"message": map[string]any{"subject": subjectOf(b), "seq": r.Seq, "data": payloadOf(b)}}
		} else if r.Seq == 5 && grow.Load() {
			holds(all[8:])
		}
		text, err := json.Marshal(answer)
		if err != nil {
			t.Error(err)
		}
		_ = m.Respond(text)
	}
	batch := func(m *nats.Msg) {
		var r struct{ Seq, Batch int }
		if err := json.Unmarshal(m.Data, &r); err != nil {
			t.Error(err)
		}
		last := 0
		for seq, held := r.Seq, *stream.Load(); seq <= len(held) && seq < r.Seq+r.Batch; seq++ {
			b := &held[seq-1]
			_ = nc.PublishMsg(&nats.Msg{Subject: m.Reply, Data: payloadOf(b), Header: nats.Header{
				"Nats-Subject": {subjectOf(b)}, "Nats-Sequence": {fmt.Sprint(seq)}, "Nats-Last-Sequence": {fmt.Sprint(last)},
			}})
			last = seq
		}
		status := "204"
		if last == 0 {
			status = "404"
		}
		_ = nc.PublishMsg(&nats.Msg{Subject: m.Reply, Header: nats.Header{
			"Status": {status}, "Nats-Num-Pending": {"0"}, "Nats-Last-Sequence": {fmt.Sprint(last)},
		}})
	}
	for subject, answer := range map[string]nats.MsgHandler{"$JS.API.STREAM.MSG.GET.chain_blocks": get, "$JS.API.DIRECT.GET.chain_blocks": batch} {
		if _, err := nc.Subscribe(subject, answer); err != nil {
			t.Fatal(err)
		}
	}
	b := natschain.Bare(nc, nil)
	holds(all[:5])
	if page, err := b.Blocks(context.Background(), chaingql.BlocksQuery{First: 5}); err != nil || len(page) != 5 {
		t.Fatalf("at first there are %v, %v", page, err)
	}
	holds(nil)
	grow.Store(true)
	page, err := b.Blocks(context.Background(), chaingql.BlocksQuery{First: 3, After: all[4].Cursor})
	if err != nil || !slices.Equal(cursorsOf(page), cursorsOf(all[8:11])) {
		t.Errorf("past the last block of the old stream come %v of %v; %v", cursorsOf(page), cursorsOf(all[8:11]), err)
	}
}
