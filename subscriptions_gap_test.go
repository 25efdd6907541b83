package chaingql_test

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/backendtest"
	"github.com/chaingql/chaingql/memchain"
)

// In a gappyChain, Follow skips the missing blocks. If permanent is true, Blocks skips them too.
type gappyChain struct {
	*memchain.Chain
	missing   map[chaingql.Cursor]bool
	permanent bool
}

func newGappyChain(t testing.TB, blocks []chaingql.Block, missing chaingql.Cursor) *gappyChain {
	return &gappyChain{Chain: chainOf(t, blocks), missing: map[chaingql.Cursor]bool{missing: true}}
}

func (s *gappyChain) Follow(ctx context.Context, after chaingql.Cursor) iter.Seq2[chaingql.Block, error] {
	return func(yield func(chaingql.Block, error) bool) {
		for b, err := range s.Chain.Follow(ctx, after) {
			if s.missing[b.Cursor] {
				continue
			}
			if !yield(b, err) {
				return
			}
		}
	}
}

func (s *gappyChain) Blocks(ctx context.Context, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
	blocks, err := s.Chain.Blocks(ctx, q)
	if s.permanent {
		var left []chaingql.Block
		for _, b := range blocks {
			if !s.missing[b.Cursor] {
				left = append(left, b)
			}
		}
		blocks = left
	}
	return blocks, err
}

// A lane is the position of the newest block in one shard.
type lane struct {
	workchain int32
	shard     uint64
	seqNo     uint32
}

// weave returns blocks of the masterchain (m) and of two shards (a, b) in the given order.
func weave(order string) []chaingql.Block {
	lanes := map[rune]*lane{'m': {-1, wholeShard, 0}, 'a': {0, 0x4000000000000000, 0}, 'b': {0, 0xc000000000000000, 0}}
	var blocks []chaingql.Block
	for i, name := range order {
		l := lanes[name]
		l.seqNo++
		blocks = append(blocks, chaingql.Block{
			Workchain: l.workchain, Shard: l.shard, SeqNo: l.seqNo,
			Time: time.Unix(1_600_000_000+int64(i), 0), Cursor: chaingql.SeqCursor(uint64(i + 1)),
		})
	}
	return blocks
}

func blockFrames(id string, blocks ...chaingql.Block) (frames []string) {
	for _, b := range blocks {
		frames = append(frames, data(id, fmt.Sprintf(`{"blocks":{"chain_order":%q}}`, b.Cursor)))
	}
	return frames
}

const (
	onlyMaster = "subscription{blocks(filter:{workchain_id:{eq:-1}}){chain_order}}"
	onlyA      = `subscription{blocks(filter:{shard:{eq:"4000000000000000"}}){chain_order}}`
	onlyB      = `subscription{blocks(filter:{shard:{eq:"c000000000000000"}}){chain_order}}`
)

func TestBlockSkippedByFollowIsDeliveredInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocks := weave("mabmabmmm")
		s := newGappyChain(t, blocks[:6], blocks[7].Cursor)
		h, log := newHandler(t, s, chaingql.Options{})
		n := serve(t, mounted(h))
		c := n.socket(t)
		c.send(start("1", allBlocks))
		synctest.Wait()
		commit(t, s.Chain, blocks[6:]...)
		c.expect("all", blockFrames("1", blocks[6:]...)...)
		equal(t, "warnings", strings.Count(log.String(), "STREAM_GAP"), 0)
	})
}

// The skipped block of shard a is noticed only when the next block of that shard arrives. Before that, a block of shard
// b and a masterchain block have been sent.
func TestGapFoundLateEndsOnlySubscriptionsThatPassedIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d hookRecorder
		blocks := weave("mabmab" + "abma")
		s := newGappyChain(t, blocks[:6], blocks[6].Cursor)
		h, _ := newHandler(t, s, chaingql.Options{Hooks: d.hooks()})
		n := serve(t, mounted(h))
		everything, master, a, b := n.socket(t), n.socket(t), n.socket(t), n.socket(t)
		events := n.stream(t, allBlocks)
		everything.send(start("1", allBlocks))
		master.send(start("1", onlyMaster))
		a.send(start("1", onlyA))
		b.send(start("1", onlyB))
		synctest.Wait()
		commit(t, s.Chain, blocks[6:9]...)
		everything.expect("before the gap is noticed", blockFrames("1", blocks[7:9]...)...)
		commit(t, s.Chain, blocks[9])
		master.expect("the masterchain", blockFrames("1", blocks[8])...)
		b.expect("the other shard", blockFrames("1", blocks[7])...)
		a.expect("the shard itself, in its place", blockFrames("1", blocks[6], blocks[9])...)
		gap := fmt.Sprintf(
			`{"message":"Blocks are missing from the stream.","extensions":{"code":"STREAM_GAP","cursor":%q}}`,
			blocks[5].Cursor)
		everything.expect("a reader that was sent later blocks",
			`{"type":"connection_error","id":null,"payload":`+gap+`}`, "CLOSE 1001")
		want := append([]string{":"}, nexts(blocks[7:9])...)
		want = append(want, "event: next", "id: "+string(blocks[5].Cursor), `data: {"errors":[`+gap+`]}`, "END")
		events.expect("the same in events", want...)

		again := n.socket(t)
		again.send(start("1", fmt.Sprintf("subscription{blocks(after:%q){chain_order}}", blocks[5].Cursor)))
		again.expect("after resuming", blockFrames("1", blocks[6:]...)...)
		document := fmt.Sprintf(`{blockchain{blocks(first:9,after:%q){edges{cursor}}}}`, blocks[5].Cursor)
		equal(t, "query after the gap", query(h, document, nil), fmt.Sprintf(
			`{"data":{"blockchain":{"blocks":{"edges":[{"cursor":%q},{"cursor":%q},{"cursor":%q},{"cursor":%q}]}}}}`,
			blocks[6].Cursor, blocks[7].Cursor, blocks[8].Cursor, blocks[9].Cursor))
		ends := strings.Join(d.drain(), "\n")
		if n := strings.Count(ends, `failed true, reason "gap"`); n != 2 {
			t.Errorf("%d subscriptions ended with the reason gap, want 2: %s", n, ends)
		}
	})
}

func TestUnrepairedGapEndsOnlyAffectedSubscriptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d hookRecorder
		blocks := weave("mabmab" + "aamb")
		s := newGappyChain(t, blocks[:6], blocks[6].Cursor)
		s.permanent = true
		hooks := chaingql.Hooks{SourceFailed: d.hooks().SourceFailed}
		h, _ := newHandler(t, s, chaingql.Options{Hooks: hooks})
		n := serve(t, mounted(h))
		everything, master, a := n.socket(t), n.socket(t), n.socket(t)
		everything.send(start("1", allBlocks))
		master.send(start("1", onlyMaster))
		a.send(start("1", onlyA))
		synctest.Wait()
		commit(t, s.Chain, blocks[6:]...)
		time.Sleep(10 * time.Second)
		master.expect("the masterchain", blockFrames("1", blocks[8])...)
		var cursor string
		for what, c := range map[string]*socket{"everything": everything, "the shard": a} {
			got := c.receive()
			if len(got) != 2 || !strings.Contains(got[0], `"code":"STREAM_GAP","cursor":`) || got[1] != "CLOSE 1001" {
				t.Errorf("the subscription to %s received %q, want STREAM_GAP", what, got)
			} else {
				_, cursor, _ = strings.Cut(got[0], `"cursor":"`)
				cursor, _, _ = strings.Cut(cursor, `"`)
			}
		}
		if got := query(h, newest, nil); got != newestIs(blocks[9]) {
			t.Errorf("a query after the gap received %s", got)
		}
		again := n.socket(t)
		if !strings.HasPrefix(cursor, string(blocks[5].Cursor)+"!") {
			t.Errorf("the error has the cursor %q, want %q with reported gaps", cursor, blocks[5].Cursor)
		}
		again.send(start("1", fmt.Sprintf("subscription{blocks(after:%q){chain_order}}", cursor)))
		again.expect("the stored blocks after resuming", blockFrames("1", blocks[7:]...)...)
		if got := d.drain(); len(got) != 1 || !strings.Contains(got[0], "gap true") {
			t.Errorf("SourceFailed reported %q, want one gap", got)
		}
	})
}

func TestHooksReportDroppedBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d hookRecorder
		blocks := weave("mmmm")
		chain := chainOf(t, blocks[:1])
		stuttering := backendtest.Chaos(chain, backendtest.ChaosOptions{Duplicate: 1, Replay: 1})
		h, _ := newHandler(t, stuttering, chaingql.Options{Hooks: chaingql.Hooks{
			BlockReceived: func(b chaingql.Block, _ time.Duration) { d.note("received %s", b.Cursor) },
			BlockDropped:  func(b chaingql.Block) { d.note("dropped %s", b.Cursor) },
		}})
		startStream(t, h, chain, blocks[1])
		commit(t, chain, blocks[2])
		d.expect(t, "each block twice, then an old one",
			"received 02", "dropped 02", "received 03", "dropped 03", "dropped 02")
	})
}

func TestSkippedBlockOfAQuietShardIsFound(t *testing.T) {
	for name, quiet := range map[string]int{
		"quiet before the start":                         300,
		"quiet since before the start and long after it": 3000,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				blocks := weave("b" + strings.Repeat("m", quiet) + "bmmb")
				skipped := len(blocks) - 4
				s := newGappyChain(t, blocks[:300], blocks[skipped].Cursor)
				h, _ := newHandler(t, s, chaingql.Options{})
				n := serve(t, mounted(h))
				n.stream(t, onlyB)
				synctest.Wait()
				commit(t, s.Chain, blocks[300:skipped]...)
				synctest.Wait()
				c, all := n.socket(t), n.stream(t, allBlocks)
				c.send(start("1", onlyB))
				time.Sleep(time.Second)
				commit(t, s.Chain, blocks[skipped:skipped+3]...)
				synctest.Wait()
				commit(t, s.Chain, blocks[skipped+3])
				synctest.Wait()
				c.expect("the quiet shard", blockFrames("1", blocks[skipped], blocks[skipped+3])...)
				f := &follower{t: t, n: n, document: allBlocks}
				for len(all.lines) > 0 {
					f.take(<-all.lines)
				}
				if !slices.Equal(f.codes, []string{"STREAM_GAP"}) {
					t.Errorf("the subscription to all blocks received %q and the errors %q", f.got, f.codes)
				}
				f.connect(4)
				if !slices.Equal(f.got, orders(blocks[skipped:])) {
					t.Errorf("after resuming, the subscription to all blocks received %q and the errors %q",
						f.got, f.codes)
				}
			})
		})
	}
}

// gapFor commits blocks with a permanent gap in workchain 0. It reports whether a subscription with this filter ends
// with STREAM_GAP.
func gapFor(t *testing.T, filter string) (ended bool) {
	synctest.Test(t, func(t *testing.T) {
		blocks := weave("mabmab" + "aamb")
		s := newGappyChain(t, blocks[:6], blocks[6].Cursor)
		s.permanent = true
		h, _ := newHandler(t, s, chaingql.Options{})
		c := serve(t, mounted(h)).socket(t)
		c.send(start("1", "subscription{blocks(filter:"+filter+"){chain_order}}"))
		synctest.Wait()
		commit(t, s.Chain, blocks[6:]...)
		time.Sleep(10 * time.Second)
		ended = strings.Contains(fmt.Sprint(c.receive()), "STREAM_GAP")
	})
	return ended
}

func TestPermanentGapEndsOnlyMatchingSubscriptions(t *testing.T) {
	for filter, concerned := range map[string]bool{
		"null":                                 true,
		"{}":                                   true,
		"{workchain_id:{eq:0}}":                true,
		"{workchain_id:{ne:-1}}":               true,
		"{workchain_id:{eq:-1}}":               false,
		"{workchain_id:{in:[-1,7]}}":           false,
		`{shard:{eq:"4000000000000000"}}`:      true,
		`{workchain_id:{eq:-1},seq_no:{gt:5}}`: false,
		"{workchain_id:{eq:-1},OR:{workchain_id:{eq:0}}}":                          true,
		"{workchain_id:{eq:-1},OR:{workchain_id:{eq:7},OR:{seq_no:{lt:1000000}}}}": true,
		"{workchain_id:{eq:-1},OR:{workchain_id:{eq:7}}}":                          false,
	} {
		equal(t, filter, gapFor(t, filter), concerned)
	}
}
