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

// TestPagesFromLaggingReplicaAreComplete uses a stream of five blocks. The leader has all of them, but
// the replica that serves pages has only some of them at first.
func TestPagesFromLaggingReplicaAreComplete(t *testing.T) {
	t.Parallel()
	s := newBroker(t, func(o *server.Options) { o.JetStream = false })
	nc, err := nats.Connect(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	all := blocks(5)
	payload := func(seq int) []byte { return payloadOf(&all[seq-1]) }
	subject := func(seq int) string { return subjectOf(&all[seq-1]) }
	var deaf atomic.Int64 // number of requests to leave without a response, as if there were no leader
	leader := func(m *nats.Msg) {
		if deaf.Add(-1) >= 0 {
			return
		}
		var r request
		if err := json.Unmarshal(m.Data, &r); err != nil {
			t.Error(err)
		}
		seq := len(all)
		if r.Last == "" {
			seq = r.Seq
		}
		answer, err := json.Marshal(map[string]any{"message": map[string]any{"subject": subject(seq), "seq": seq,
			"data": payload(seq)}})
		if err != nil {
			t.Error(err)
		}
		_ = m.Respond(answer)
	}
	var asked atomic.Int64
	follower := func(m *nats.Msg) {
		var r request
		if err := json.Unmarshal(m.Data, &r); err != nil {
			t.Error(err)
		}
		nth := int(asked.Add(1))
		has := min(nth/2*2, len(all)) // number of blocks in the replica: 0, 2, 2, 4, 4, 5
		last, n := 0, 0
		for seq := r.Seq; seq <= has && n < r.Batch; seq++ {
			if nth == 4 && n == 0 { // the first message of this response is lost in transit
				last, n = seq, n+1
				continue
			}
			_ = nc.PublishMsg(&nats.Msg{Subject: m.Reply, Data: payload(seq), Header: nats.Header{
				"Nats-Subject": {subject(seq)}, "Nats-Sequence": {fmt.Sprint(seq)},
				"Nats-Last-Sequence": {fmt.Sprint(last)}, "Nats-Time-Stamp": {"2026-01-02T03:04:05Z"},
			}})
			last, n = seq, n+1
		}
		status := "404"
		if n > 0 {
			status = "204"
		}
		_ = nc.PublishMsg(&nats.Msg{Subject: m.Reply, Header: nats.Header{
			"Status": {status}, "Nats-Num-Pending": {"0"}, "Nats-Last-Sequence": {fmt.Sprint(last)},
		}})
	}
	state := func(m *nats.Msg) { _ = m.Respond([]byte(`{"created":"0001-01-01T00:00:00Z"}`)) }
	for subject, answer := range map[string]nats.MsgHandler{"$JS.API.STREAM.MSG.GET.chain_blocks": leader,
		"$JS.API.DIRECT.GET.chain_blocks": follower, "$JS.API.STREAM.INFO.chain_blocks": state} {
		if _, err := nc.Subscribe(subject, answer); err != nil {
			t.Fatal(err)
		}
	}
	b := natschain.Bare(nc, nil)
	for _, q := range []chaingql.BlocksQuery{{First: 10}, {Last: 10}, {Last: 3}} {
		asked.Store(0)
		deaf.Store(1)
		page, err := b.Blocks(context.Background(), q)
		if err != nil {
			t.Fatal(err)
		}
		if want := chaingql.PageOf(all, q); !slices.Equal(cursorsOf(page), cursorsOf(want)) {
			t.Errorf("page %+v: %s", q, difference(cursorsOf(page), cursorsOf(want)))
		}
	}
}

// payloadOf returns the payload of a block's message as a program in another language may write it.
func payloadOf(b *chaingql.Block) []byte {
	return fmt.Appendf(nil, `{"cursor":%q,"seq_no":%d,"hash":%q,"time":%q}`, b.Cursor, b.SeqNo, b.Hash,
		b.Time.Format("2006-01-02T15:04:05Z"))
}

// subjectOf returns the subject of a block's message.
func subjectOf(b *chaingql.Block) string {
	return fmt.Sprintf("chain.blocks.%d.%016x", b.Workchain, b.Shard)
}
