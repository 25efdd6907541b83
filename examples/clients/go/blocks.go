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

// An Ended is why the service does not go on with a stream.
type Ended struct {
	// Code is STREAM_GAP, where blocks are missing from what was given: go on from
	// Cursor, and forget what came from behind it. It is CURSOR_TOO_OLD where the
	// service has dropped blocks that were not given yet: go on from "", knowing
	// that they are lost. Others tell what is wrong with the request.
	Code    string
	Message string
	Cursor  string // that the stream had come to; "" where it is not told
}

func (e *Ended) Error() string { return fmt.Sprintf("chain: %s (%s)", e.Message, e.Code) }

// Blocks gives each block behind the cursor after that matches the filter (nil
// matches all), first those that are there, then each new one: in order, none left
// out and none twice, however often the line or the service is lost in between.
// From "" on it gives all that the service keeps. It ends with an error: ctx's,
// an *[Ended], or that the service refuses to be asked. A block's ChainOrder is
// the cursor to begin with the next time.
func (c *Client) Blocks(ctx context.Context, after string, filter *BlockFilter) iter.Seq2[Block, error] {
	return func(yield func(Block, error) bool) {
		wanted := true
		for failures := 0; ; failures++ {
			err := c.follow(ctx, after, filter, func(b Block) bool {
				after, failures = b.ChainOrder, 0
				wanted = yield(b, nil)
				return wanted
			})
			if !wanted {
				return
			}
			var end *Ended
			switch {
			case ctx.Err() != nil:
				err = ctx.Err()
			case errors.As(err, &end) && (end.Code == "SERVICE_UNAVAILABLE" || end.Code == "RATE_LIMITED"):
				after, err = max(after, end.Cursor), nil // blocks that did not match are behind it, too
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
	errEmpty    = errors.New("chain: the service left out what it was asked for")
	errUnwanted = errors.New("unwanted") // the caller has seen enough
)

// follow subscribes on a connection of its own and returns when that has ended.
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
				blocks, err = nil, io.ErrUnexpectedEOF // a stream of blocks has no end
			case len(answer.Errors) > 0:
				err = endedBy(answer.Errors[0])
			case answer.Data == nil || answer.Data.Blocks.ChainOrder == "":
				err = errEmpty
			case !each(answer.Data.Blocks):
				err = errUnwanted
			}
		}
	}
	// genqlient's Unsubscribe and Close panic when a block comes at the same time.
	// Where the line is cut its reader ends, with one error.
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

func endedBy(e *gqlerror.Error) *Ended {
	end := &Ended{Message: e.Message}
	end.Code, _ = e.Extensions["code"].(string)
	end.Cursor, _ = e.Extensions["cursor"].(string)
	return end
}

// lost tells a line that was lost, where another may do, from a refusal.
func lost(err error) bool {
	switch websocket.CloseStatus(err) {
	case websocket.StatusGoingAway, websocket.StatusServiceRestart, websocket.StatusTryAgainLater, websocket.StatusNormalClosure:
		return true
	case -1: // no close frame
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

// wait lets time pass before the next try: more each time, and not the same for all
// that lost the same service.
func wait(ctx context.Context, failures int) error {
	pause := min(100*time.Millisecond<<min(failures, 10), 30*time.Second)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(pause/2 + rand.N(pause/2)):
		return nil
	}
}
