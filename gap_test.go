package chaingql_test

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/backendtest"
	"github.com/chaingql/chaingql/memchain"
)

// A sieve is a chain whose Follow leaves blocks out, and whose Blocks does too
// where they are lost for good.
type sieve struct {
	*memchain.Chain
	hole map[chaingql.Cursor]bool
	lost bool
}

func (s *sieve) Follow(ctx context.Context, after chaingql.Cursor) iter.Seq2[chaingql.Block, error] {
	return func(yield func(chaingql.Block, error) bool) {
		for b, err := range s.Chain.Follow(ctx, after) {
			if s.hole[b.Cursor] {
				continue
			}
			if !yield(b, err) {
				return
			}
		}
	}
}

func (s *sieve) Blocks(ctx context.Context, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
	blocks, err := s.Chain.Blocks(ctx, q)
	if s.lost {
		var left []chaingql.Block
		for _, b := range blocks {
			if !s.hole[b.Cursor] {
				left = append(left, b)
			}
		}
		blocks = left
	}
	return blocks, err
}

// lane makes blocks of one shard in a row.
type lane struct {
	workchain int32
	shard     uint64
	seqNo     uint32
}

// weave makes blocks of the masterchain (m) and of two shards (a, b), in that
// order.
func weave(order string) []chaingql.Block {
	lanes := map[rune]*lane{'m': {-1, wholeShard, 0}, 'a': {0, 0x4000000000000000, 0}, 'b': {0, 0xc000000000000000, 0}}
	var blocks []chaingql.Block
	for i, name := range order {
		l := lanes[name]
		l.seqNo++
		blocks = append(blocks, chaingql.Block{Workchain: l.workchain, Shard: l.shard, SeqNo: l.seqNo, Time: time.Unix(1_600_000_000+int64(i), 0), Cursor: chaingql.SeqCursor(uint64(i + 1))})
	}
	return blocks
}

func order(id string, blocks ...chaingql.Block) (frames []string) {
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

func TestAHoleThatShowsAtOnceIsFilledUnnoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocks := weave("mabmabmmm")
		s := &sieve{Chain: chainOf(t, blocks[:6]), hole: map[chaingql.Cursor]bool{blocks[7].Cursor: true}}
		h, log := newHandler(t, s, chaingql.Options{})
		n := serve(t, mounted(h))
		c := n.socket(t)
		c.say(start("1", allBlocks))
		synctest.Wait()
		commit(t, s.Chain, blocks[6:]...)
		c.expect("all", order("1", blocks[6:]...)...)
		equal(t, "warnings", strings.Count(log.String(), "STREAM_GAP"), 0)
	})
}

// The block of shard a that is left out shows only with its successor, when
// one of b and one of the masterchain have gone out.
func TestALateHoleIsFilledForThoseWhoWereSentNothingFromBehindIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		blocks := weave("mabmab" + "abma")
		s := &sieve{Chain: chainOf(t, blocks[:6]), hole: map[chaingql.Cursor]bool{blocks[6].Cursor: true}}
		h, _ := newHandler(t, s, chaingql.Options{Hooks: d.hooks()})
		n := serve(t, mounted(h))
		everything, master, a, b := n.socket(t), n.socket(t), n.socket(t), n.socket(t)
		events := n.stream(t, allBlocks)
		everything.say(start("1", allBlocks))
		master.say(start("1", onlyMaster))
		a.say(start("1", onlyA))
		b.say(start("1", onlyB))
		synctest.Wait()
		commit(t, s.Chain, blocks[6:9]...)
		everything.expect("before it shows", order("1", blocks[7:9]...)...)
		commit(t, s.Chain, blocks[9])
		master.expect("the masterchain", order("1", blocks[8])...)
		b.expect("the other shard", order("1", blocks[7])...)
		a.expect("the shard itself, in its place", order("1", blocks[6], blocks[9])...)
		gap := fmt.Sprintf(`{"message":"Blocks are missing from the stream.","extensions":{"code":"STREAM_GAP","cursor":%q}}`, blocks[5].Cursor)
		everything.expect("who was sent blocks from behind it", `{"type":"connection_error","id":null,"payload":`+gap+`}`, "CLOSE 1001")
		events.expect("the same in events", append(append([]string{":"}, nexts(blocks[7:9])...), "event: next", "id: "+string(blocks[5].Cursor), `data: {"errors":[`+gap+`]}`, "END")...)

		again := n.socket(t)
		again.say(start("1", fmt.Sprintf("subscription{blocks(after:%q){chain_order}}", blocks[5].Cursor)))
		again.expect("who goes on from there", order("1", blocks[6:]...)...)
		equal(t, "what a query sees", query(h, fmt.Sprintf(`{blockchain{blocks(first:9,after:%q){edges{cursor}}}}`, blocks[5].Cursor), nil),
			fmt.Sprintf(`{"data":{"blockchain":{"blocks":{"edges":[{"cursor":%q},{"cursor":%q},{"cursor":%q},{"cursor":%q}]}}}}`, blocks[6].Cursor, blocks[7].Cursor, blocks[8].Cursor, blocks[9].Cursor))
		told := strings.Join(d.since(), "\n")
		if n := strings.Count(told, `failed true, reason "gap"`); n != 2 {
			t.Errorf("%d streams ended for the gap: %s", n, told)
		}
	})
}

func TestAHoleThatCannotBeFilledEndsOnlyTheStreamsItConcerns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		blocks := weave("mabmab" + "aamb")
		s := &sieve{Chain: chainOf(t, blocks[:6]), hole: map[chaingql.Cursor]bool{blocks[6].Cursor: true}, lost: true}
		hooks := chaingql.Hooks{SourceFailed: d.hooks().SourceFailed}
		h, _ := newHandler(t, s, chaingql.Options{Hooks: hooks})
		n := serve(t, mounted(h))
		everything, master, a := n.socket(t), n.socket(t), n.socket(t)
		everything.say(start("1", allBlocks))
		master.say(start("1", onlyMaster))
		a.say(start("1", onlyA))
		synctest.Wait()
		commit(t, s.Chain, blocks[6:]...)
		time.Sleep(10 * time.Second)
		master.expect("the masterchain", order("1", blocks[8])...)
		var told string
		for what, c := range map[string]*socket{"everything": everything, "the shard": a} {
			got := c.hear()
			if len(got) != 2 || !strings.Contains(got[0], `"code":"STREAM_GAP","cursor":`) || got[1] != "CLOSE 1001" {
				t.Errorf("%s: %q", what, got)
			} else {
				_, told, _ = strings.Cut(got[0], `"cursor":"`)
				told, _, _ = strings.Cut(told, `"`)
			}
		}
		if got := query(h, newest, nil); got != newestIs(blocks[9]) {
			t.Errorf("queries still work: %s", got)
		}
		again := n.socket(t)
		if !strings.HasPrefix(told, string(blocks[5].Cursor)+"!") {
			t.Errorf("told to resume from %q, want after %q, where it began", told, blocks[5].Cursor)
		}
		again.say(start("1", fmt.Sprintf("subscription{blocks(after:%q){chain_order}}", told)))
		again.expect("who goes on from there has what there is", order("1", blocks[7:]...)...)
		if got := d.since(); len(got) != 1 || !strings.Contains(got[0], "gap true") {
			t.Errorf("hooks: %q", got)
		}
	})
}

func TestHooksSeeWhatIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		blocks := weave("mmmm")
		chain := chainOf(t, blocks[:1])
		stuttering := backendtest.Chaos(chain, backendtest.ChaosOptions{Duplicate: 1, Replay: 1})
		h, _ := newHandler(t, stuttering, chaingql.Options{Hooks: chaingql.Hooks{
			BlockReceived: func(b chaingql.Block, _ time.Duration) { d.note("received %s", b.Cursor) },
			BlockDropped:  func(b chaingql.Block) { d.note("dropped %s", b.Cursor) },
		}})
		waken(t, h, chain, blocks[1])
		commit(t, chain, blocks[2])
		d.expect(t, "each block twice, and an old one behind it", "received 02", "dropped 02", "received 03", "dropped 03", "dropped 02")
	})
}
