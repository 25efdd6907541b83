package chaingqltest_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/chaingqltest"
)

const allBlocks = `subscription { blocks { seq_no } }`

func seqNo(n uint32) chaingqltest.Data {
	return chaingqltest.Data(fmt.Sprintf(`{"blocks":{"seq_no":%d}}`, n))
}

// Without the cursor that Subscribe sends, the first subscription of a Handler could miss the next blocks.
func TestSubscriptionStartsWhenSubscribeIsCalled(t *testing.T) {
	for i := range 100 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			chain := chaingqltest.NewChain(t)
			h := chaingqltest.NewHandler(t, chain, nil)
			n := uint32(len(chain.Advance(i % 3)))
			for range 3 {
				events := chaingqltest.Subscribe(t, h, allBlocks, nil)
				chain.Advance(2)
				got := chaingqltest.Take(t, events, 2)
				if want := []chaingqltest.Data{seqNo(n + 1), seqNo(n + 2)}; !slices.Equal(got, want) {
					t.Fatalf("the events are %s, want %s", got, want)
				}
				n += 2
			}
		})
	}
}

func TestAfterArgumentSetsTheStartOfASubscription(t *testing.T) {
	chain := chaingqltest.NewChain(t)
	h := chaingqltest.NewHandler(t, chain, nil)
	blocks := chain.Advance(3)
	const document = `subscription s($from: String) { blocks(after: $from) { seq_no } }`
	events := chaingqltest.Subscribe(t, h, document, map[string]any{"from": blocks[0].Cursor})
	chain.Advance(1)
	got := chaingqltest.Take(t, events, 3)
	if want := []chaingqltest.Data{seqNo(2), seqNo(3), seqNo(4)}; !slices.Equal(got, want) {
		t.Errorf("the events are %s, want %s", got, want)
	}
}

func TestSubtestSubscribesToTheChainOfItsTest(t *testing.T) {
	chain := chaingqltest.NewChain(t)
	h := chaingqltest.NewHandler(t, chain, nil)
	chain.Advance(5)
	t.Run("sub/test", func(t *testing.T) {
		events := chaingqltest.Subscribe(t, h, allBlocks, nil)
		chain.Advance(1)
		equal(t, "event", chaingqltest.Take(t, events, 1)[0], seqNo(6))
	})
	t.Run("another chain", func(t *testing.T) {
		other := chaingqltest.NewChain(t)
		events := chaingqltest.Subscribe(t, chaingqltest.NewHandler(t, other, nil), allBlocks, nil)
		other.Advance(1)
		equal(t, "event", chaingqltest.Take(t, events, 1)[0], seqNo(1))
	})
}

func TestAppendAddsBlocksOfOtherWorkchains(t *testing.T) {
	block := func(seqNo, masterSeqNo uint32) chaingql.Block {
		return chaingql.Block{Shard: 1 << 63, SeqNo: seqNo, Cursor: chaingql.ChainOrder(0, 1<<63, seqNo, masterSeqNo)}
	}
	synctest.Test(t, func(t *testing.T) { // a Handler waits some seconds for a block that its source skipped
		chain := chaingqltest.NewChain(t)
		h := chaingqltest.NewHandler(t, chain, nil)
		chain.Advance(1)
		const document = `subscription { blocks(filter: { workchain_id: { eq: 0 } }) { seq_no } }`
		events := chaingqltest.Subscribe(t, h, document, nil)
		chain.Append(block(1, 2))
		chain.Append()
		chain.Advance(1)
		chain.Append(block(3, 3)) // without 2
		var got []string
		for data, err := range events {
			got = append(got, string(data)+chaingqltest.Code(err))
		}
		equal(t, "events", strings.Join(got, " "), string(seqNo(1))+" STREAM_GAP")
	})
	text := failure(t, func(t testing.TB) { chaingqltest.NewChain(t).Append(block(1, 1), block(1, 1)) })
	if !strings.HasPrefix(text, "chaingqltest: append: memchain: block 2 of 2 has cursor") {
		t.Errorf("for unordered blocks, the test failed with %q", text)
	}
}

func TestAdvanceReturnsWhenHandlersHaveReceivedTheBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		chain := chaingqltest.NewChain(t)
		h := chaingqltest.NewHandler(t, chain, &chaingql.Options{Hooks: chaingql.Hooks{
			BlockReceived: func(chaingql.Block, time.Duration) { time.Sleep(time.Second) },
		}})
		chaingqltest.Subscribe(t, h, allBlocks, nil)
		synctest.Wait() // until the Handler follows the chain
		begun := time.Now()
		chain.Advance(3)
		equal(t, "time", time.Since(begun), 3*time.Second)
		latest := chaingqltest.Query(t, h, `{ blockchain { blocks(last: 1) { edges { node { seq_no } } } } }`, nil)
		equal(t, "newest block", latest, `{"blockchain":{"blocks":{"edges":[{"node":{"seq_no":3}}]}}}`)
	})
}

func TestAdvanceMayBeCalledConcurrently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		chain := chaingqltest.NewChain(t)
		h := chaingqltest.NewHandler(t, chain, &chaingql.Options{Hooks: chaingql.Hooks{
			BlockReceived: func(chaingql.Block, time.Duration) { time.Sleep(time.Millisecond) },
		}})
		events := chaingqltest.Subscribe(t, h, allBlocks, nil)
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() { chain.Advance(10) })
		}
		for i, data := range chaingqltest.Take(t, events, 100) {
			equal(t, "event", data, seqNo(uint32(i+1)))
		}
		all.Wait()
	})
}

func TestAdvanceDoesNotWaitForAFollowThatHasFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		chain := chaingqltest.NewChain(t)
		h := chaingqltest.NewHandler(t, chain, nil)
		events := chaingqltest.Subscribe(t, h, allBlocks, nil)
		chain.Advance(1)
		chain.Interrupt(nil)
		chain.Advance(1)
		chain.Interrupt(nil)
		synctest.Wait()
		chain.Advance(1) // while the Handler waits before it follows the chain again
		got := chaingqltest.Take(t, events, 3)
		if want := []chaingqltest.Data{seqNo(1), seqNo(2), seqNo(3)}; !slices.Equal(got, want) {
			t.Errorf("the events are %s, want %s", got, want)
		}
	})
}

// With -count, go test runs a test several times under the same name.
func TestEachRunOfATestHasItsOwnChain(t *testing.T) {
	for range 5 {
		if !passes(func(t *testing.T) {
			chain := chaingqltest.NewChain(t)
			events := chaingqltest.Subscribe(t, chaingqltest.NewHandler(t, chain, nil), allBlocks, nil)
			chain.Advance(1)
			equal(t, "event", chaingqltest.Take(t, events, 1)[0], seqNo(1))
		}) {
			t.Fatal("a run of the test failed")
		}
	}
}

func TestRefusedSubscriptionYieldsItsErrors(t *testing.T) {
	chain := chaingqltest.NewChain(t)
	h := chaingqltest.NewHandler(t, chain, &chaingql.Options{
		Authorizer: chaingql.StaticProjects{"demo": {}},
	})
	for document, want := range map[string]string{
		`subscription { unknown }`:                   "GRAPHQL_VALIDATION_FAILED",
		`subscription { blocks(after: "+") { id } }`: "BAD_USER_INPUT",
	} {
		var codes []string
		for data, err := range chaingqltest.Subscribe(t, h, document, nil) {
			codes = append(codes, string(data)+chaingqltest.Code(err))
		}
		equal(t, "codes of "+document, strings.Join(codes, " "), want)
	}
	for _, err := range chaingqltest.Subscribe(t, chaingqltest.As(h, "other", ""), allBlocks, nil) {
		equal(t, "code", chaingqltest.Code(err), "UNAUTHENTICATED")
	}
	text := failure(t, func(t testing.TB) {
		chaingqltest.Take(t, chaingqltest.Subscribe(t, chaingqltest.As(h, "other", ""), allBlocks, nil), 2)
	})
	equal(t, "Take", text, "chaingqltest: event 1 of 2: Unauthorized access (UNAUTHENTICATED)")
	got := chaingqltest.Take(t, chaingqltest.Subscribe(t, h, `{ __typename }`, nil), 1)
	equal(t, "a query as a stream", got[0], `{"__typename":"Query"}`)
}

func TestMissingEventFailsTheTest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		chain := chaingqltest.NewChain(t)
		h := chaingqltest.NewHandler(t, chain, nil)
		text := failure(t, func(t testing.TB) {
			events := chaingqltest.Subscribe(t, h, allBlocks, nil)
			chain.Advance(1)
			begun := time.Now()
			defer func() { equal(t, "time until the failure", time.Since(begun), chaingqltest.Timeout) }()
			chaingqltest.Take(t, events, 2)
		})
		equal(t, "message", text, "chaingqltest: "+allBlocks+": event 2 did not arrive within 10s: "+
			"was no block appended, or did none match?")
	})
}

func TestAdvanceFailsTheTestIfAHookBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		text := failure(t, func(tb testing.TB) {
			chain := chaingqltest.NewChain(tb)
			h := chaingqltest.NewHandler(tb, chain, &chaingql.Options{Hooks: chaingql.Hooks{
				BlockReceived: func(chaingql.Block, time.Duration) { <-release },
			}})
			chaingqltest.Subscribe(tb, h, allBlocks, nil)
			synctest.Wait()
			chain.Advance(1)
		})
		close(release)
		equal(t, "message", text, "chaingqltest: a Handler has not received block 01m within 10s: does a hook block?")
	})
}

func TestSubscriptionToAHostFieldWorksInASynctestBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan error, 1)
		opts := &chaingql.Options{Schema: hostFields(ended, time.Second)}
		h := chaingqltest.NewHandler(t, chaingqltest.NewChain(t), opts)
		const document = `subscription s($to: Int!) { count(n: $to) }`
		begun := time.Now()
		var got []chaingqltest.Data
		for data, err := range chaingqltest.Subscribe(t, h, document, map[string]any{"to": 3}) {
			equal(t, "error", err, nil)
			got = append(got, data)
		}
		if want := []chaingqltest.Data{`{"count":1}`, `{"count":2}`, `{"count":3}`}; !slices.Equal(got, want) {
			t.Errorf("the events are %s, want %s", got, want)
		}
		equal(t, "time", time.Since(begun), 3*time.Second)
		equal(t, "end of the stream", <-ended, nil)
		text := failure(t, func(t testing.TB) {
			chaingqltest.Take(t, chaingqltest.Subscribe(t, h, document, map[string]any{"to": 1}), 2)
		})
		equal(t, "Take", text, "chaingqltest: the subscription ended after 1 of 2 events")
		<-ended
	})
}

func TestSubscriptionEndsWithItsLoopAndWithTheTest(t *testing.T) {
	ended := make(chan error, 1)
	h := chaingqltest.NewHandler(t, chaingqltest.NewChain(t), &chaingql.Options{Schema: hostFields(ended, 0)})
	const document = `subscription { count(n: 1000000) }`
	events := chaingqltest.Subscribe(t, h, document, nil)
	for range events {
		break
	}
	equal(t, "end of the stream", <-ended, context.Canceled)
	for data := range events {
		t.Errorf("a second loop received %s", data)
	}
	equal(t, "Take of no event", len(chaingqltest.Take(t, events, 0)), 0)
	t.Run("without a loop", func(t *testing.T) {
		chaingqltest.Subscribe(t, h, document, nil)
	})
	equal(t, "end of the stream", <-ended, context.Canceled)
	equal(t, "Advance outside of a bubble, without a subscription", len(chaingqltest.NewChain(t).Advance(2)), 2)
}
