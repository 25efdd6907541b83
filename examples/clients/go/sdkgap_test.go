package chain_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/chaingql/chaingql"
	client "github.com/chaingql/chaingql/examples/clients/go"
	"github.com/chaingql/chaingql/memchain"
)

// An omittingBackend's Follow omits a block that Blocks has.
type omittingBackend struct {
	*memchain.Chain
	omitted atomic.Pointer[string]
}

func (o *omittingBackend) Follow(ctx context.Context, after chaingql.Cursor) iter.Seq2[chaingql.Block, error] {
	return func(yield func(chaingql.Block, error) bool) {
		for b, err := range o.Chain.Follow(ctx, after) {
			if omitted := o.omitted.Load(); err == nil && omitted != nil && string(b.Cursor) == *omitted {
				continue
			}
			if !yield(b, err) {
				return
			}
		}
	}
}

func TestBlockThatServiceRepairedIsProcessed(t *testing.T) {
	type follow func(client.SDK, string, func(client.SDKBlock), func(error)) (func(), error)
	for name, follow := range map[string]follow{
		"FollowFrom": client.FollowFrom,
		"FollowNew": func(sdk client.SDK, after string, each func(client.SDKBlock), ended func(error)) (func(), error) {
			return client.FollowNew(t.Context(), sdk, after, each, ended)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, ctx := serve(t), soon(t)
			s.grow(5)
			backend := &omittingBackend{Chain: s.chain}
			s.shutdown(s.handler.Swap(s.openBackend(backend)))
			got := make(chan string, 10_000)
			if _, err := follow(newModelSDK(t, s.address, func(int) {}), s.cursors(all)[9],
				func(b client.SDKBlock) { got <- b.ChainOrder }, neverEnded(t)); err != nil {
				t.Fatal(err)
			}
			seen := make(map[string]int)
			growUntil := func(block string) {
				t.Helper()
				for range 200 {
					for s.growSoon(ctx); len(got) > 0; {
						seen[<-got]++
					}
					if seen[block] > 0 {
						return
					}
				}
				t.Errorf("block %s was not processed", block)
			}
			s.grow(1)
			growUntil(s.cursors(all)[11])
			for range 3 { // each time, Follow omits the next block of the shard
				n := uint32(len(s.cursors(all))/2 + 1)
				omitted := string(chaingql.ChainOrder(0, 1<<63, n, n))
				backend.omitted.Store(&omitted)
				growUntil(omitted)
			}
			stored := s.cursors(all)
			growUntil(stored[len(stored)-1])
			for _, block := range stored[10:] {
				if seen[block] != 1 {
					t.Errorf("block %s was processed %d times, want once", block, seen[block])
				}
			}
		})
	}
}

// A scriptedSDK lets a test call the handler of the subscription. Its queries read stored.
type scriptedSDK struct {
	stored []string // chain_order of each block
	handle func(json.RawMessage, error)
	after  []string // cursors of the queries
	down   bool     // queries fail
	pruned string   // cursor of the newest block that was pruned
}

func (s *scriptedSDK) Subscribe(_ string, _ map[string]any, handle func(json.RawMessage, error)) (func(), error) {
	s.handle = handle
	return func() {}, nil
}

func (s *scriptedSDK) Query(_ context.Context, _ string, variables map[string]any) (json.RawMessage, error) {
	after := variables["after"].(string)
	s.after = append(s.after, after)
	if s.down {
		return nil, errors.New("503 Service Unavailable")
	}
	if after != "" && after < s.pruned {
		return nil, tooOld
	}
	edges := []any{}
	for _, block := range s.stored {
		if block > after && len(edges) < 50 {
			edges = append(edges, map[string]any{"cursor": block, "node": map[string]any{"chain_order": block}})
		}
	}
	return json.Marshal(map[string]any{"blockchain": map[string]any{"blocks": map[string]any{"edges": edges}}})
}

// live delivers the blocks with these numbers.
func (s *scriptedSDK) live(numbers ...int) {
	for _, n := range numbers {
		s.handle(fmt.Appendf(nil, `{"blocks":{"chain_order":%q,"cursor":%[1]q}}`, order(n)), nil)
	}
}

func (s *scriptedSDK) store(numbers ...int) {
	for _, n := range numbers {
		s.stored = append(s.stored, order(n))
	}
	slices.Sort(s.stored)
}

// prune removes the blocks up to the one with this number.
func (s *scriptedSDK) prune(n int) {
	s.pruned = order(n)
	s.stored = slices.DeleteFunc(s.stored, func(block string) bool { return block <= s.pruned })
}

func numbers(first, last int) (all []int) {
	for n := first; n <= last; n++ {
		all = append(all, n)
	}
	return all
}

// order returns the chain_order of a block.
func order(n int) string { return fmt.Sprintf("%05d", n) }

var (
	cut = &client.SDKError{Code: disconnected, Message: "connection reset"}
	gap = &client.SDKError{Code: disconnected, Message: "Graphql error: Blocks are missing from the stream."}
)

func TestFollowNewRecoversMissedBlocks(t *testing.T) {
	for _, row := range []struct {
		name string
		play func(*scriptedSDK)
		want []int
		end  error
	}{
		{"a block that was missing before the last one appears during an interruption", func(s *scriptedSDK) {
			s.store(1, 2, 4)
			s.live(1, 2, 4)
			s.store(3, 5, 6)
			s.handle(nil, cut)
			s.live(6, 7)
		}, []int{1, 2, 4, 3, 5, 6, 7}, nil},
		{"the service finds the block of a gap", func(s *scriptedSDK) {
			s.store(1, 2, 4)
			s.live(1, 2, 4)
			s.store(3, 5)
			s.handle(nil, gap)
			s.live(5, 6)
		}, []int{1, 2, 4, 3, 5, 6}, nil},
		{"the block of a gap cannot be read", func(s *scriptedSDK) {
			s.store(1, 2, 4)
			s.live(1, 2, 4)
			s.store(5)
			s.handle(nil, gap)
			s.live(5, 6)
		}, []int{1, 2, 4, 5}, gap},
		{"only one of two missing blocks can be read before the next error", func(s *scriptedSDK) {
			s.store(1, 2, 5)
			s.live(1, 2, 5)
			s.store(4, 6)
			s.handle(nil, gap)
			s.live(6)
			s.store(3, 7)
			s.handle(nil, cut)
			s.live(7)
		}, []int{1, 2, 5, 4, 6, 3, 7}, nil},
		{"an error follows the one for the gap", func(s *scriptedSDK) {
			s.store(1, 2, 4)
			s.live(1, 2, 4)
			s.store(5)
			s.handle(nil, gap)
			s.handle(nil, cut)
			s.live(5, 6)
		}, []int{1, 2, 4, 5}, gap},
		{"the pages end before the block of the subscription", func(s *scriptedSDK) {
			s.store(1)
			s.live(1)
			s.handle(nil, cut)
			s.store(2)
			s.live(4)
			s.store(3, 4)
			s.live(5)
		}, []int{1, 2, 3, 4, 5}, nil},
		{"the block of the subscription is older than the last one", func(s *scriptedSDK) {
			s.store(1, 2, 3)
			s.live(1, 2, 3)
			s.handle(nil, cut)
			s.live(2, 3, 4)
		}, []int{1, 2, 3, 4}, nil},
		{"the block of the subscription is older than the one of a gap", func(s *scriptedSDK) {
			for n := 1; n <= 100; n++ {
				if n != 90 {
					s.store(n)
					s.live(n)
				}
			}
			s.store(90)
			s.handle(nil, gap)
			s.live(5, 6)
		}, slices.Concat(numbers(1, 89), numbers(91, 100), []int{90}), nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			var sdk scriptedSDK
			var got, want []string
			var end error
			if _, err := client.FollowNew(t.Context(), &sdk, order(0), func(b client.SDKBlock) {
				got = append(got, b.ChainOrder)
			}, func(err error) { end = errors.Join(end, err) }); err != nil {
				t.Fatal(err)
			}
			row.play(&sdk)
			for _, n := range row.want {
				want = append(want, order(n))
			}
			if !slices.Equal(got, want) {
				t.Errorf("processed %v, want %v", got, want)
			}
			if (end != nil) != (row.end != nil) || !errors.Is(end, row.end) {
				t.Errorf("ended with %v, want %v", end, row.end)
			}
		})
	}
}

// TestFollowNewReadsFewBlocksAgain bounds the cost of a reconnect and the memory for known blocks.
func TestFollowNewReadsFewBlocksAgain(t *testing.T) {
	var sdk scriptedSDK
	processed := 0
	if _, err := client.FollowNew(t.Context(), &sdk, order(0), func(client.SDKBlock) { processed++ },
		neverEnded(t)); err != nil {
		t.Fatal(err)
	}
	for n := range 2000 {
		sdk.store(n + 1)
		sdk.live(n + 1)
	}
	sdk.after = nil
	sdk.handle(nil, cut)
	sdk.live(1, 2000)
	if first := sdk.after[0]; first != order(1500) {
		t.Errorf("after 2000 blocks, FollowNew reads again from %s, want %s", first, order(1500))
	}
	if processed != 2000 {
		t.Errorf("processed %d blocks, want 2000", processed)
	}
}

func TestFollowNewContinuesAfterOutageOfQueries(t *testing.T) {
	sdk := scriptedSDK{down: true}
	var got []string
	if _, err := client.FollowNew(t.Context(), &sdk, order(0), func(b client.SDKBlock) {
		got = append(got, b.ChainOrder)
	}, neverEnded(t)); err != nil {
		t.Fatal(err)
	}
	for n := range 1200 { // more blocks than FollowNew keeps
		sdk.store(n + 1)
		sdk.live(n + 1)
	}
	sdk.down = false
	sdk.store(1201)
	sdk.live(1201)
	if !slices.Equal(got, sdk.stored) {
		t.Errorf("processed %d blocks, want the %d stored ones, in order", len(got), len(sdk.stored))
	}
}
