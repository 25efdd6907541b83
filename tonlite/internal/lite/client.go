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

// A Client is a connection to one lite server. Its methods may be called concurrently. If the
// connection is lost, all queries in flight fail at once.
type Client struct {
	channel *channel
	lost    chan struct{} // closed when the connection ends
	cause   error         // why the connection ended; read only after lost is closed
	heard   atomic.Int64  // time of the last packet, in Unix nanoseconds
	running sync.WaitGroup

	mu    sync.Mutex
	calls map[[32]byte]chan []byte
}

// ErrLost is returned if an established connection has ended.
var ErrLost = errors.New("the connection is lost")

// Dial connects to the server at addr. key is the server's public key. ctx limits the time of the
// attempt. Close the Client when you no longer need it.
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

// Lost returns a channel that is closed when the connection ends.
func (c *Client) Lost() <-chan struct{} { return c.lost }

// Heard returns the time at which the last packet from the server arrived.
func (c *Client) Heard() time.Time { return time.Unix(0, c.heard.Load()) }

// Close closes the connection and waits until the Client's goroutines have ended.
func (c *Client) Close() {
	_ = c.channel.conn.Close()
	c.running.Wait()
}

// Ask sends a query and returns the response. If the server responds with an error, Ask returns
// an [Error]. Ask returns other errors if the connection is lost, the context is done, or the
// response is malformed.
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
	query := appendBytes(appendUint32(nil, idLite), q.append(nil))
	if err := c.channel.send(appendBytes(append(appendUint32(nil, idQuery), id[:]...), query)); err != nil {
		_ = c.channel.conn.Close()
		<-c.lost // so that Lost is closed when the caller checks it
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

// Servers and network devices close connections that are idle for a long time. Therefore the Client
// sends pings.
const (
	pingEvery = 10 * time.Second
	deadAfter = 3 * pingEvery
)

// ping keeps the connection alive, and closes it if the server sends nothing for deadAfter.
func (c *Client) ping() {
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		select {
		case <-c.lost:
			return
		case now := <-tick.C:
			ping := appendUint64(appendUint32(nil, idPing), uint64(now.UnixNano()))
			if now.Sub(c.Heard()) > deadAfter || c.channel.send(ping) != nil {
				_ = c.channel.conn.Close() // ends listen
			}
		}
	}
}

// listen reads packets and passes each response to the call of Ask that waits for it.
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
		if r.readUint32() != idAnswer {
			continue // a pong, or an unknown message
		}
		id, message := r.readHash(), r.readBytes()
		if r.err != nil {
			continue
		}
		c.mu.Lock()
		back := c.calls[id]
		delete(c.calls, id) // further responses to the query are ignored
		c.mu.Unlock()
		if back != nil {
			back <- message
		}
	}
}
