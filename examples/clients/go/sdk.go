package chain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
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
// it grow with the time since the cursor. Unsubscribe from time to time and call FollowFrom with a newer cursor.
//
// The blocks are in order, with one exception: if the service receives a block late, after later ones, the subscription
// ends with STREAM_GAP, and FollowFrom processes the block late. If the service never receives the block, FollowFrom
// processes no later blocks until it is called with a cursor after that block.
//
// If the service has pruned the blocks after the cursor, a reconnect ends the subscription with CURSOR_TOO_OLD, and if
// the chain was replaced, the subscription ends with EPOCH_CHANGED. FollowFrom then calls ended with the error. The
// service accepts the cursor "" in both cases: blocks are lost or blocks of two chains are processed, without an error.
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

// FollowNew subscribes without a cursor, so that a reconnect repeats no blocks. after is the highest cursor of the
// blocks that the app has. FollowNew calls process exactly once for each block after that cursor. The subscription
// misses blocks while the connection is interrupted; FollowNew reads them with the query blocks(after:) when the next
// block arrives.
//
// The blocks are in order, with the same exception as in FollowFrom. After each error, FollowNew also reads the last
// 500 blocks again, drops the known ones by their chain_order, and processes the others late. If the error was
// STREAM_GAP and none of these blocks was missing, FollowNew calls ended with that error. The app must then look for
// the missing block in older ones; to continue, call FollowNew again. FollowNew never reads blocks before after, or, if
// after is "", before the first block that it has processed: if a block there may be late, pass an older cursor and
// drop the blocks that the app has.
//
// The error does not contain the number of missing blocks. If FollowNew finds only some of them, it continues, and
// looks for the others only after the next error. They are lost, without an error, if they are not among the last 500
// blocks then.
//
// If the service has pruned some of the last 500 blocks, FollowNew reads fewer of them again, at least half of those
// that are left. If it has pruned a block after the last processed one, FollowNew calls ended with CURSOR_TOO_OLD.
//
// If the service refuses the subscription or the query for another reason, for example with EPOCH_CHANGED because the
// chain was replaced, FollowNew calls ended with the error. It calls ended once, and then ignores all blocks.
func FollowNew(ctx context.Context, sdk SDK, after string, process func(SDKBlock), ended func(error)) (
	unsubscribe func(), err error) {
	f := &newFollower{sdk: sdk, process: process, start: after, missing: true, read: after}
	over := false
	return sdk.Subscribe(`subscription{blocks{seq_no chain_order cursor}}`, nil, func(data json.RawMessage, err error) {
		if over {
			return
		}
		if err = f.handle(ctx, data, err); err != nil {
			over = true
			ended(err)
		}
	})
}

const (
	readAgain = 500 // maximum number of known blocks that a newFollower reads again after an error

	// The SDK passes only the text of an error of the service, neither its code nor its cursor.
	streamGap    = "Blocks are missing from the stream."
	cursorTooOld = "The blocks after this cursor are no longer kept."
)

// A newFollower is a call of FollowNew.
type newFollower struct {
	sdk     SDK
	process func(SDKBlock)
	start   string     // all processed blocks after this cursor are in known
	known   []SDKBlock // by chain_order; at most readAgain

	missing bool       // blocks before those of the subscription may be missing
	read    string     // the position of readMissing
	waiting []SDKBlock // from the subscription; at most readAgain
	gap     error      // STREAM_GAP, until a missing block is found
}

// handle processes an event of the subscription. It returns the error that ends the subscription.
func (f *newFollower) handle(ctx context.Context, data json.RawMessage, err error) error {
	if err != nil {
		if givenUp(err) {
			return err
		}
		if f.start == "" && len(f.known) > 0 {
			f.forget(1) // the service does not refuse "", even if blocks were pruned or the chain was replaced
		}
		f.missing, f.read, f.waiting = true, f.start, nil
		if strings.Contains(err.Error(), streamGap) {
			f.gap = err
		}
		return nil // the SDK reconnects
	}
	if len(f.waiting) == readAgain {
		f.waiting = nil // the query returns these blocks
	}
	f.waiting = append(f.waiting, liveBlock(data))
	if f.missing {
		err := f.readMissing(ctx)
		if givenUp(err) {
			return err
		}
		if err != nil {
			return nil // the next block starts another attempt
		}
		if f.missing = false; f.gap != nil {
			return f.gap
		}
	}
	for _, b := range f.waiting {
		f.add(b)
	}
	f.waiting = nil
	return nil
}

// readMissing adds the stored blocks up to the first block of the subscription.
func (f *newFollower) readMissing(ctx context.Context) error {
	const blocks = `query($after:String){blockchain{blocks(first:50,after:$after)` +
		`{edges{cursor node{seq_no chain_order}}}}}`
	end := f.waiting[0].ChainOrder
	if n := len(f.known); n > 0 { // another instance of the service may begin with a block that is known
		end = max(end, f.known[n-1].ChainOrder)
	}
	for f.read < end {
		data, err := f.sdk.Query(ctx, blocks, map[string]any{"after": f.read})
		if n := len(f.known); err != nil && strings.Contains(err.Error(), cursorTooOld) && n > 0 {
			f.forget((n + 1) / 2) // the pruned blocks may all be known, so try a newer cursor
			f.read = f.start
			continue
		}
		if err != nil {
			return err
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
			return err
		}
		if len(page.Blockchain.Blocks.Edges) == 0 {
			return errNotStored
		}
		for _, edge := range page.Blockchain.Blocks.Edges {
			f.read = edge.Cursor
			edge.Node.Cursor = edge.Cursor
			f.add(edge.Node)
		}
	}
	return nil
}

// errNotStored means that an instance of the service answered the query that does not have the newest blocks yet.
var errNotStored = errors.New("chain: the pages end before the block of the subscription")

// add processes b unless it is known.
func (f *newFollower) add(b SDKBlock) {
	i, known := slices.BinarySearchFunc(f.known, b.ChainOrder, func(b SDKBlock, order string) int {
		return strings.Compare(b.ChainOrder, order)
	})
	if known || b.ChainOrder <= f.start {
		return
	}
	if i < len(f.known) {
		f.gap = nil // this block was missing before others
	}
	f.known = slices.Insert(f.known, i, b)
	if len(f.known) > readAgain {
		f.forget(1)
	}
	f.process(b)
}

// forget removes the n oldest blocks from known and moves start to the newest of them.
func (f *newFollower) forget(n int) {
	f.start = f.known[n-1].Cursor
	f.known = slices.Delete(f.known, 0, n)
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
