package lite

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// A Client is one connection to a server. Its methods may be called
// concurrently. When the connection is lost, what is under way fails at once.
type Client struct {
	channel *channel
	lost    chan struct{}
	cause   error // read after lost
	heard   atomic.Int64
	running sync.WaitGroup

	mu    sync.Mutex
	calls map[[32]byte]chan []byte
}

// ErrLost says that a connection ended that had stood.
var ErrLost = errors.New("the connection is lost")

// Dial connects to the server that has a key, within the context. Close the
// Client when it is no longer used.
func Dial(ctx context.Context, addr string, key ed25519.PublicKey) (*Client, error) {
	ch, err := dial(ctx, addr, key)
	if err != nil {
		return nil, err
	}
	return newClient(ch), nil
}

func newClient(ch *channel) *Client {
	c := &Client{channel: ch, lost: make(chan struct{}), calls: make(map[[32]byte]chan []byte)}
	c.heard.Store(time.Now().UnixNano())
	c.running.Go(c.listen)
	c.running.Go(c.ping)
	return c
}

// Lost is closed when the connection is.
func (c *Client) Lost() <-chan struct{} { return c.lost }

// Heard is when the server last said anything.
func (c *Client) Heard() time.Time { return time.Unix(0, c.heard.Load()) }

// Close ends the connection, and returns when nothing of it runs any more.
func (c *Client) Close() {
	_ = c.channel.conn.Close()
	c.running.Wait()
}

// Ask puts a query and waits for its answer, as long as the context allows. An
// [Error] is what the server said; other errors are the connection's or the
// context's.
func (c *Client) Ask(ctx context.Context, q Message) (Message, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var id [32]byte
	if _, err := rand.Read(id[:]); err != nil {
		return nil, err
	}
	back := make(chan []byte, 1)
	c.mu.Lock()
	c.calls[id] = back
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.calls, id)
		c.mu.Unlock()
	}()
	query := text(number(nil, idLite), q.append(nil))
	if err := c.channel.send(text(append(number(nil, idQuery), id[:]...), query)); err != nil {
		_ = c.channel.conn.Close()
		<-c.lost // so that whoever asks again does not find it standing
		return nil, fmt.Errorf("%w: %w", ErrLost, err)
	}
	select {
	case message := <-back:
		return ParseAnswer(message)
	case <-c.lost:
		return nil, fmt.Errorf("%w: %w", ErrLost, c.cause)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Servers hang up on those who are silent for long, and networks forget them.
const (
	pingEvery = 10 * time.Second
	deadAfter = 3 * pingEvery
)

// ping keeps the connection alive, and ends one on which nothing comes back.
func (c *Client) ping() {
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		select {
		case <-c.lost:
			return
		case now := <-tick.C:
			if now.Sub(c.Heard()) > deadAfter || c.channel.send(long(number(nil, idPing), uint64(now.UnixNano()))) != nil {
				_ = c.channel.conn.Close() // which listen notices
			}
		}
	}
}

func (c *Client) listen() {
	for {
		payload, err := c.channel.read()
		if err != nil {
			c.cause = err
			_ = c.channel.conn.Close()
			close(c.lost)
			return
		}
		c.heard.Store(time.Now().UnixNano())
		r := &reader{rest: payload}
		if r.number() != idAnswer {
			continue // a pong, or what is not known here
		}
		id, message := r.hash(), r.text()
		if r.err != nil {
			continue
		}
		c.mu.Lock()
		back := c.calls[id]
		delete(c.calls, id) // one answer is all that is listened to
		c.mu.Unlock()
		if back != nil {
			back <- message
		}
	}
}
