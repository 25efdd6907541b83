package chain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// An SDK provides two functions of the networks' SDK that an app needs to follow blocks: net.query and
// net.subscribe.
//
// If the connection is lost, the SDK calls on with an error, reconnects, and restarts each subscription
// with its original variables. If on receives an [SDKError] with the code [GraphQLError], the
// subscription has ended and is not restarted.
type SDK interface {
	// Query runs a query and returns the data of the response.
	Query(ctx context.Context, document string, variables map[string]any) (data json.RawMessage, err error)

	// Subscribe starts a subscription. It calls on with the data of each event or with an error,
	// one call at a time.
	Subscribe(
		document string, variables map[string]any, on func(data json.RawMessage, err error),
	) (unsubscribe func(), err error)
}

// GraphQLError is the code of the SDKError with which the service refuses or ends a subscription.
const GraphQLError = 608

// An SDKError is an error that the SDK passes to its caller.
type SDKError struct {
	Code    int
	Message string
}

func (e *SDKError) Error() string { return fmt.Sprintf("%s (%d)", e.Message, e.Code) }

// An SDKBlock is a block that [FollowFrom] and [FollowNew] pass to the app.
type SDKBlock struct {
	SeqNo      float64 `json:"seq_no"`
	ChainOrder string  `json:"chain_order"`
}

// FollowFrom subscribes to all blocks after the cursor after. It calls the function each exactly once
// for each block, even if the connection is lost.
//
// After each reconnect, the service sends all blocks after the cursor again. FollowFrom remembers the
// chain_order of each block and drops the blocks that it knows. The number of repeated blocks and the
// memory therefore grow with time: unsubscribe from time to time and call FollowFrom with a newer
// cursor. If the service has pruned a block after the cursor, the subscription ends at the next
// reconnect with CURSOR_TOO_OLD, and FollowFrom calls ended with the error.
func FollowFrom(sdk SDK, after string, each func(SDKBlock), ended func(error)) (unsubscribe func(), err error) {
	known := make(map[string]bool)
	const document = `subscription($after:String){blocks(after:$after){seq_no chain_order}}`
	on := func(data json.RawMessage, err error) {
		if err != nil {
			if givenUp(err) {
				ended(err)
			}
			return // the SDK reconnects, unless it has given up
		}
		if b := liveBlock(data); !known[b.ChainOrder] {
			known[b.ChainOrder] = true
			each(b)
		}
	}
	return sdk.Subscribe(document, map[string]any{"after": after}, on)
}

// FollowNew subscribes to new blocks without a cursor, so that the service repeats no block after a
// reconnect. Blocks that were committed during the interruption are missing from the subscription.
// When the next block arrives, FollowNew reads the missing blocks with the query blocks(after:).
//
// after is the cursor of the last block that the app has processed. FollowNew calls the function each
// exactly once for each block after it, in order. It calls ended if the service refuses or ends the
// subscription.
func FollowNew(
	ctx context.Context, sdk SDK, after string, each func(SDKBlock), ended func(error),
) (unsubscribe func(), err error) {
	missing := true // whether blocks between after and the next event may be missing
	return sdk.Subscribe(`subscription{blocks{seq_no chain_order}}`, nil, func(data json.RawMessage, err error) {
		if err != nil {
			missing = true
			if givenUp(err) {
				ended(err)
			}
			return
		}
		b := liveBlock(data)
		if missing {
			if after, err = readMissing(ctx, sdk, after, b.ChainOrder, each); err != nil {
				return // when the next block arrives, readMissing is called again and reads b too
			}
			missing = false
		}
		if b.ChainOrder > after {
			after = b.ChainOrder
			each(b)
		}
	})
}

// readMissing calls each for all blocks between two cursors and returns the cursor of the last block for
// which it has called each.
func readMissing(ctx context.Context, sdk SDK, after, before string, each func(SDKBlock)) (last string, err error) {
	const document = `query($after:String){blockchain{blocks(first:50,after:$after){
		edges{node{seq_no chain_order}}}}}`
	for {
		data, err := sdk.Query(ctx, document, map[string]any{"after": after})
		if err != nil {
			return after, err
		}
		var page struct {
			Blockchain struct {
				Blocks struct{ Edges []struct{ Node SDKBlock } }
			}
		}
		if err := json.Unmarshal(data, &page); err != nil {
			return after, err
		}
		for _, edge := range page.Blockchain.Blocks.Edges {
			if edge.Node.ChainOrder >= before {
				return after, nil
			}
			after = edge.Node.ChainOrder
			each(edge.Node)
		}
		if len(page.Blockchain.Blocks.Edges) == 0 {
			return after, nil
		}
	}
}

// givenUp reports whether the SDK will not restart the subscription after err.
func givenUp(err error) bool {
	var e *SDKError
	return errors.As(err, &e) && e.Code == GraphQLError
}

// liveBlock returns the block of an event.
func liveBlock(data json.RawMessage) SDKBlock {
	var event struct{ Blocks SDKBlock }
	_ = json.Unmarshal(data, &event) // the service sends valid JSON
	return event.Blocks
}
