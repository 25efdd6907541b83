package lite

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// A Client is a connection to one lite server. Its methods may be called concurrently. If the
// connection is lost, all queries in flight fail at once.
type Client struct {
	channel *channel
	window  *Window
	closing chan struct{} // closed by hangUp
	hangUp  func()        // closes the connection, which ends listen; may be called more than once
	lost    chan struct{} // closed when the connection ends
	cause   error         // see Err
	opened  time.Time     // with a monotonic reading, because the wall clock may be set
	heard   atomic.Int64  // time of the last packet, in nanoseconds since opened
	allowed atomic.Int64  // number of packets that the server may send, or it floods the connection
	running sync.WaitGroup

	mu    sync.Mutex
	calls map[[32]byte]chan []byte
}

// ErrLost is returned if an established connection has ended, except because of ErrFlood.
var ErrLost = errors.New("the connection is lost")

// ErrFlood is returned if a connection was closed because the server sent many packets that answer no query.
var ErrFlood = errors.New("the server floods the connection")

var errLong = errors.New("the response is longer than any valid one")

// maxNoise is the number of packets that a server may send without a query or a ping.
const maxNoise = 16

// Connect runs the handshake on conn, a connection to a server. key is the server's public key, and
// window its Window. ctx limits the time of the handshake. If Connect returns an error, it has closed
// conn. Close the Client when you no longer need it.
func Connect(ctx context.Context, conn net.Conn, key ed25519.PublicKey, window *Window) (*Client, error) {
	ch, err := connect(ctx, conn, key)
	if err != nil {
		return nil, err
	}
	return newClient(ch, window), nil
}

func newClient(ch *channel, window *Window) *Client {
	c := &Client{
		channel: ch, window: window, closing: make(chan struct{}), lost: make(chan struct{}),
		calls: make(map[[32]byte]chan []byte), opened: time.Now(),
	}
	c.hangUp = sync.OnceFunc(func() {
		close(c.closing)
		_ = ch.conn.Close()
	})
	c.allowed.Store(maxNoise)
	c.running.Go(c.listen)
	c.running.Go(c.ping)
	return c
}

// Lost returns a channel that is closed when the connection ends.
func (c *Client) Lost() <-chan struct{} { return c.lost }

// Err returns why the connection ended: ErrFlood, or an error that wraps ErrLost. It must be called only after the
// channel that Lost returns is closed.
func (c *Client) Err() error { return c.cause }

// Heard returns the time at which the last packet from the server arrived.
func (c *Client) Heard() time.Time { return c.opened.Add(time.Duration(c.heard.Load())) }

// Close closes the connection and waits until the Client's goroutines have ended.
func (c *Client) Close() {
	c.hangUp()
	c.running.Wait()
}

// Ask is like [Client.Query] for callers that are done with the response soon.
func (c *Client) Ask(ctx context.Context, q Message) (Message, error) {
	answer, release, err := c.Query(ctx, q)
	if err != nil {
		return nil, err
	}
	release()
	return answer, nil
}

// Query sends a query and returns the response, which counts toward the Window until the caller
// calls release. If the server responds with an error, Query returns an [Error]. Query returns
// other errors if the connection is lost, the context is done, or the response is malformed. If
// it returns an error, there is nothing to release.
func (c *Client) Query(ctx context.Context, q Message) (answer Message, release func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	var id [32]byte
	if _, err := rand.Read(id[:]); err != nil {
		return nil, nil, err
	}
	back := make(chan []byte, 1)
	c.mu.Lock()
	c.calls[id] = back
	c.mu.Unlock()
	c.allowed.Add(1)
	query := appendBytes(appendUint32(nil, idLite), q.append(nil))
	if err := c.channel.send(appendBytes(append(appendUint32(nil, idQuery), id[:]...), query)); err != nil {
		c.hangUp()
		<-c.lost // so that Lost is closed when the caller checks it
		c.drop(id, back)
		return nil, nil, fmt.Errorf("%w: %w", ErrLost, err)
	}
	select {
	case message := <-back:
		if err = errLong; len(message) <= maxAnswer(q) {
			answer, err = ParseAnswer(message)
		}
		if err != nil {
			c.window.add(-len(message))
			return nil, nil, err
		}
		return answer, func() { c.window.add(-len(message)) }, nil
	case <-c.lost:
		err = c.cause
	case <-ctx.Done():
		err = ctx.Err()
	}
	c.drop(id, back)
	return nil, nil, err
}

// drop ends a call whose response is not needed any more. The response may have arrived already.
func (c *Client) drop(id [32]byte, back <-chan []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.calls, id)
	select {
	case message := <-back:
		c.window.add(-len(message))
	default:
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
			c.allowed.Add(2) // the pong, and a packet of another kind
			ping := appendUint64(appendUint32(nil, idPing), uint64(now.UnixNano()))
			if now.Sub(c.Heard()) > deadAfter || c.channel.send(ping) != nil {
				c.hangUp()
			}
		}
	}
}

// listen reads packets and passes each response to the call of Query that waits for it. While the
// Window is full, listen reads nothing. It ends the connection if the server sends more packets than
// queries and pings were sent to it, because reading them would use up a processor.
func (c *Client) listen() {
	for {
		payload, err := c.next()
		switch {
		case err != nil:
			err = fmt.Errorf("%w: %w", ErrLost, err)
		case c.allowed.Add(-1) < 0:
			err = ErrFlood
		}
		if err != nil {
			c.cause = err
			c.hangUp()
			close(c.lost)
			return
		}
		c.heard.Store(int64(time.Since(c.opened)))
		r := &reader{rest: payload}
		if r.readUint32() != idAnswer {
			continue // a pong, or an unknown message
		}
		id, message := r.readHash(), r.readBytes()
		if r.err != nil {
			continue
		}
		if len(r.rest) > 0 {
			message = payload // no response, so Query returns an error; the Window counts all bytes, which share memory
		}
		c.mu.Lock()
		back := c.calls[id]
		delete(c.calls, id) // further responses to the query are ignored
		if back != nil {
			c.window.add(len(message))
			back <- message // does not block, because there is only one
		}
		c.mu.Unlock()
	}
}

// next returns the payload of the next packet.
func (c *Client) next() ([]byte, error) {
	if !c.window.wait(c.closing) {
		return nil, net.ErrClosed
	}
	return c.channel.read(maxPacket)
}
