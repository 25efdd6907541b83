package chain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// An SDK provides the two functions of the networks' SDK that an app needs to follow blocks: net.query and
// net.subscribe.
//
// After a lost connection, the SDK first calls handle with an error and then restarts each subscription with its
// original variables. If handle receives an [SDKError] with the code [GraphQLError], the SDK does not restart the
// subscription.
type SDK interface {
	// Query returns the data of a query's response.
	Query(ctx context.Context, document string, variables map[string]any) (data json.RawMessage, err error)

	// Subscribe calls handle with the data of each event, or with an error. It never calls handle concurrently.
	Subscribe(document string, variables map[string]any, handle func(data json.RawMessage, err error)) (
		unsubscribe func(), err error)
}

// GraphQLError is the code of an SDKError that ends a subscription, because the service has refused it.
const GraphQLError = 608

// An SDKError is an error that the SDK reports.
type SDKError struct {
	Code    int
	Message string
}

func (e *SDKError) Error() string { return fmt.Sprintf("%s (%d)", e.Message, e.Code) }

// An SDKBlock is a block that [FollowFrom] or [FollowNew] passes to the app.
type SDKBlock struct {
	SeqNo      float64 `json:"seq_no"`
	ChainOrder string  `json:"chain_order"`
	Cursor     string  `json:"cursor"`
}

// FollowFrom subscribes with a cursor. It calls process exactly once for each block after the cursor, even if the
// connection is lost.
//
// The service may send a block several times: after each reconnect, it sends all blocks after the original cursor
// again. FollowFrom recognizes these blocks by their chain_order and drops them, so the repetition and the memory for
// it grow with the time since the cursor. Unsubscribe from time to time and call FollowFrom with a newer cursor. If the
// service has pruned the blocks after the cursor, a reconnect ends the subscription with CURSOR_TOO_OLD, and if the
// chain was replaced, the subscription ends with EPOCH_CHANGED. FollowFrom then calls ended with the error.
func FollowFrom(sdk SDK, after string, process func(SDKBlock), ended func(error)) (unsubscribe func(), err error) {
	known := make(map[string]bool)
	return sdk.Subscribe(`subscription($after:String){blocks(after:$after){seq_no chain_order cursor}}`,
		map[string]any{"after": after}, func(data json.RawMessage, err error) {
			if err != nil {
				if givenUp(err) {
					ended(err)
				}
				return // the SDK reconnects
			}
			if b := liveBlock(data); !known[b.ChainOrder] {
				known[b.ChainOrder] = true
				process(b)
			}
		})
}

// FollowNew subscribes without a cursor, so that a reconnect repeats no blocks. after is the cursor of the last block
// that the app has. FollowNew calls process exactly once for each block after that cursor, in order. The subscription
// misses blocks while the connection is interrupted; FollowNew reads them with the query blocks(after:) when the next
// block arrives. If the service refuses the subscription or that query, for example with EPOCH_CHANGED because the
// chain was replaced, FollowNew calls ended and then ignores all blocks.
func FollowNew(ctx context.Context, sdk SDK, after string, process func(SDKBlock), ended func(error)) (
	unsubscribe func(), err error) {
	missing := true // blocks after the cursor may be missing
	over := false
	return sdk.Subscribe(`subscription{blocks{seq_no chain_order cursor}}`, nil, func(data json.RawMessage, err error) {
		if over {
			return
		}
		b := liveBlock(data)
		if err == nil && missing {
			after, err = readMissing(ctx, sdk, after, b.ChainOrder, process)
		}
		if missing = err != nil; missing { // the next block starts another attempt to read, also of b
			if over = givenUp(err); over {
				ended(err)
			}
			return
		}
		if b.ChainOrder > after {
			after = b.Cursor
			process(b)
		}
	})
}

// readMissing calls process for the blocks between two cursors and returns the cursor of the last one.
func readMissing(ctx context.Context, sdk SDK, after, before string, process func(SDKBlock)) (last string, err error) {
	const blocks = `query($after:String){blockchain{blocks(first:50,after:$after)` +
		`{edges{cursor node{seq_no chain_order}}}}}`
	for {
		data, err := sdk.Query(ctx, blocks, map[string]any{"after": after})
		if err != nil {
			return after, err
		}
		var page struct {
			Blockchain struct {
				Blocks struct {
					Edges []struct {
						Cursor string
						Node   SDKBlock
					}
				}
			}
		}
		if err := json.Unmarshal(data, &page); err != nil {
			return after, err
		}
		for _, edge := range page.Blockchain.Blocks.Edges {
			if edge.Node.ChainOrder >= before {
				return after, nil
			}
			after = edge.Cursor
			edge.Node.Cursor = edge.Cursor
			process(edge.Node)
		}
		if len(page.Blockchain.Blocks.Edges) == 0 {
			return after, nil
		}
	}
}

func givenUp(err error) bool {
	var e *SDKError
	return errors.As(err, &e) && e.Code == GraphQLError
}

func liveBlock(data json.RawMessage) SDKBlock {
	var event struct{ Blocks SDKBlock }
	_ = json.Unmarshal(data, &event) // the service sends valid JSON
	return event.Blocks
}
