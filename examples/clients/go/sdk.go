package chain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// An SDK has the two functions of the networks' SDK with which an app follows blocks: net.query and net.subscribe.
//
// After a lost connection, the SDK sends each subscription again with the variables that it began with. It calls on
// with an error first, and then goes on; only after an [SDKError] with the code [GraphQLError] it does not.
type SDK interface {
	// Query returns the data of a query's response.
	Query(ctx context.Context, document string, variables map[string]any) (data json.RawMessage, err error)

	// Subscribe calls on with the data of each event, or with an error, one call at a time.
	Subscribe(document string, variables map[string]any, on func(data json.RawMessage, err error)) (unsubscribe func(), err error)
}

// GraphQLError is the code of an SDKError after which the SDK has given up a subscription: the service has refused it.
const GraphQLError = 608

// An SDKError is an error of the SDK.
type SDKError struct {
	Code    int
	Message string
}

func (e *SDKError) Error() string { return fmt.Sprintf("%s (%d)", e.Message, e.Code) }

// An SDKBlock is a block of [FollowFrom] and [FollowNew].
type SDKBlock struct {
	SeqNo      float64 `json:"seq_no"`
	ChainOrder string  `json:"chain_order"`
}

// FollowFrom subscribes with a cursor: each block after it is passed to each once, however often the connection is lost.
//
// The service sends blocks at least once, because each reconnect repeats all blocks since the cursor; those that are
// known are dropped by their chain_order. So the repetition and the memory for it grow with the time since the cursor.
// Unsubscribe and begin again with a newer cursor from time to time. When the service no longer keeps the blocks after
// the cursor, a reconnect ends the subscription (CURSOR_TOO_OLD): ended is then called with the error.
func FollowFrom(sdk SDK, after string, each func(SDKBlock), ended func(error)) (unsubscribe func(), err error) {
	known := make(map[string]bool)
	return sdk.Subscribe(`subscription($after:String){blocks(after:$after){seq_no chain_order}}`, map[string]any{"after": after},
		func(data json.RawMessage, err error) {
			if err != nil {
				if givenUp(err) {
					ended(err)
				}
				return // the SDK reconnects
			}
			if b := liveBlock(data); !known[b.ChainOrder] {
				known[b.ChainOrder] = true
				each(b)
			}
		})
}

// FollowNew subscribes without a cursor, so that a reconnect repeats nothing. The blocks of the interruption are then
// missing from the subscription: they are read with blocks(after:) when the next one comes. after is the cursor of the
// last block that the app has. Each block after it is passed to each once and in order; ended is called if the service
// refuses the subscription.
func FollowNew(ctx context.Context, sdk SDK, after string, each func(SDKBlock), ended func(error)) (unsubscribe func(), err error) {
	missing := true // blocks may be, since after
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
				return // it is read again when the next block comes, and b with it
			}
			missing = false
		}
		if b.ChainOrder > after {
			after = b.ChainOrder
			each(b)
		}
	})
}

// readMissing passes on the blocks after one cursor and before another. It returns the cursor of the last of them.
func readMissing(ctx context.Context, sdk SDK, after, before string, each func(SDKBlock)) (last string, err error) {
	for {
		data, err := sdk.Query(ctx, `query($after:String){blockchain{blocks(first:50,after:$after){edges{node{seq_no chain_order}}}}}`,
			map[string]any{"after": after})
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

func givenUp(err error) bool {
	var e *SDKError
	return errors.As(err, &e) && e.Code == GraphQLError
}

func liveBlock(data json.RawMessage) SDKBlock {
	var event struct{ Blocks SDKBlock }
	_ = json.Unmarshal(data, &event) // it is the service's
	return event.Blocks
}
