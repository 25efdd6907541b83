package chain

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"net"
	"net/http"
	"time"

	"github.com/Khan/genqlient/graphql"
	"github.com/coder/websocket"
	"github.com/vektah/gqlparser/v2/gqlerror"
)

// A StreamError is the error with which the service ended a stream.
type StreamError struct {
	// Code is STREAM_GAP if blocks were missing before some blocks that were delivered: discard the blocks after Cursor
	// and resume from Cursor. Code is CURSOR_TOO_OLD if the service has pruned blocks that the caller has not received:
	// these blocks are lost, so resume from "". Code is EPOCH_CHANGED if the chain was replaced: discard all blocks and
	// cursors, and start again without them, from "" or [Client.Newest]. Other codes describe errors of the request.
	Code    string
	Message string
	// Cursor is the cursor to resume from, or "" if it is unknown.
	Cursor string
}

func (e *StreamError) Error() string { return fmt.Sprintf("chain: %s (%s)", e.Message, e.Code) }

// Blocks yields each block after the cursor that matches the filter: first the existing blocks, then new ones. It
// yields each block once and in order, even if the connection is lost or the service restarts. If filter is nil, all
// blocks match. If after is "", Blocks starts with the oldest block that the service keeps.
//
// The last value is an error: the error of ctx, a *[StreamError], or the service's reason for refusing the request. To
// continue later, pass the Cursor of the last block as after.
func (c *Client) Blocks(ctx context.Context, after string, filter *BlockFilter) iter.Seq2[Block, error] {
	return func(yield func(Block, error) bool) {
		wanted := true
		for failures := 0; ; failures++ {
			err := c.follow(ctx, after, filter, func(b Block) bool {
				after, failures = b.Cursor, 0
				wanted = yield(b, nil)
				return wanted
			})
			if !wanted {
				return
			}
			var end *StreamError
			switch {
			case ctx.Err() != nil:
				err = ctx.Err()
			case errors.As(err, &end) && (end.Code == "SERVICE_UNAVAILABLE" || end.Code == "RATE_LIMITED"):
				after, err = max(after, end.Cursor), nil // the cursor may be after blocks that did not match
			case lost(err):
				err = nil
			}
			if err == nil {
				err = wait(ctx, failures)
			}
			if err != nil {
				yield(Block{}, err)
				return
			}
		}
	}
}

var (
	errEmpty    = errors.New("chain: the response does not contain the requested fields")
	errUnwanted = errors.New("chain: the caller has stopped the loop")
)

// follow subscribes on a new connection, calls each for each block, and returns when the connection has ended.
func (c *Client) follow(ctx context.Context, after string, filter *BlockFilter, each func(Block) bool) error {
	ctx, cut := context.WithCancel(ctx)
	defer cut()
	socket := graphql.NewClientUsingWebSocket(c.socket, dialer{c.Silence}, graphql.WithConnectionParams(c.init))
	ended, err := socket.Start(ctx)
	if err != nil {
		return err
	}
	blocks, _, err := Blocks(ctx, socket, filter, after)
	for err == nil {
		select {
		case err := <-ended:
			return err
		case answer, open := <-blocks:
			switch {
			case !open:
				blocks, err = nil, io.ErrUnexpectedEOF // a stream of blocks does not complete
			case len(answer.Errors) > 0:
				err = endedBy(answer.Errors[0])
			case answer.Data == nil || answer.Data.Blocks.Cursor == "":
				err = errEmpty
			case !each(answer.Data.Blocks):
				err = errUnwanted
			}
		}
	}
	// genqlient's Unsubscribe and Close may panic if a block arrives at the same time. Cancel the
	// connection instead: its reader then sends one error to ended.
	cut()
	for {
		select {
		case <-ended:
			return err
		case _, open := <-blocks:
			if !open {
				blocks = nil
			}
		}
	}
}

func endedBy(e *gqlerror.Error) *StreamError {
	end := &StreamError{Message: e.Message}
	end.Code, _ = e.Extensions["code"].(string)
	end.Cursor, _ = e.Extensions["cursor"].(string)
	return end
}

// initTimeout is the close code of a service that has not received connection_init in time.
const initTimeout websocket.StatusCode = 4408

// lost reports whether err means that the connection was lost, so that another attempt may succeed.
func lost(err error) bool {
	switch websocket.CloseStatus(err) {
	case websocket.StatusGoingAway, websocket.StatusServiceRestart, websocket.StatusTryAgainLater,
		websocket.StatusNormalClosure, websocket.StatusBadGateway, initTimeout:
		return true
	case -1: // the connection ended without a close frame
		var status handshakeStatus
		if errors.As(err, &status) {
			return status >= http.StatusInternalServerError || status == http.StatusTooManyRequests
		}
		var network net.Error
		return errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
			errors.Is(err, context.DeadlineExceeded) || errors.Is(err, net.ErrClosed)
	}
	return false
}

// wait sleeps before the next attempt: exponential backoff with jitter, at most 30 seconds. It returns an error if ctx
// is done first.
func wait(ctx context.Context, failures int) error {
	pause := min(100*time.Millisecond<<min(failures, 10), 30*time.Second)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(pause/2 + rand.N(pause/2)):
		return nil
	}
}
