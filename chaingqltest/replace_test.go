package chaingqltest_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/chaingqltest"
)

func TestReplaceEndsSubscriptionsAndAdvanceContinuesTheNewChain(t *testing.T) {
	const document = `subscription s($after: String) { blocks(after: $after) { seq_no cursor } }`
	test := func(t *testing.T) {
		chain := chaingqltest.NewChain(t)
		chain.Replace("one")
		h := chaingqltest.NewHandler(t, chain, nil)
		chain.Advance(8)
		events := chaingqltest.Subscribe(t, h, `subscription { blocks { seq_no cursor } }`, nil)
		chain.Advance(1)
		var got []string
		for data, err := range events {
			if got = append(got, string(data)+chaingqltest.Code(err)); err == nil {
				chain.Replace("two")
				chain.Advance(2)
			}
		}
		equal(t, "events of the old chain", strings.Join(got, " "),
			`{"blocks":{"seq_no":9,"cursor":"09m~one"}} EPOCH_CHANGED`)
		latest := chaingqltest.Query(t, h, `{ blockchain { blocks(last: 1) { edges { cursor } } } }`, nil)
		equal(t, "newest block", latest, `{"blockchain":{"blocks":{"edges":[{"cursor":"02m~two"}]}}}`)

		events = chaingqltest.Subscribe(t, h, document, map[string]any{"after": "00m~two"})
		chain.Advance(1)
		for i, data := range chaingqltest.Take(t, events, 3) {
			want := `{"blocks":{"seq_no":` + string(rune('1'+i)) + `,"cursor":"0` + string(rune('1'+i)) + `m~two"}}`
			equal(t, "event of the new chain", string(data), want)
		}
		for _, err := range chaingqltest.Subscribe(t, h, document, map[string]any{"after": "09m~one"}) {
			equal(t, "code for a cursor of the old chain", chaingqltest.Code(err), "EPOCH_CHANGED")
		}
	}
	t.Run("in real time", test)
	t.Run("in a bubble", func(t *testing.T) { synctest.Test(t, test) })
}

func TestReplaceFailsIfAHandlerDoesNotNotice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocked := make(chan struct{})
		text := failure(t, func(tb testing.TB) {
			chain := chaingqltest.NewChain(tb)
			h := chaingqltest.NewHandler(t, chain, &chaingql.Options{Hooks: chaingql.Hooks{
				BlockReceived: func(b chaingql.Block, _ time.Duration) {
					if b.SeqNo == 1 {
						<-blocked
					}
				},
			}})
			chaingqltest.Subscribe(t, h, allBlocks, nil)
			synctest.Wait()
			first := chaingql.Block{Workchain: -1, Shard: 1 << 63, SeqNo: 1, Cursor: "01m"}
			if err := chain.Chain.Append(first); err != nil {
				t.Error(err)
			}
			synctest.Wait() // until the hook blocks
			chain.Replace("two")
		})
		close(blocked)
		want := "chaingqltest: a Handler has not noticed the epoch two within 10s: does a hook block?"
		equal(t, "failure", text, want)
	})
}
