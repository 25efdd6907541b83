package lite

import (
	"context"
	"crypto/ed25519"
	"net"
	"sync"
	"time"
)

// Noise is the number of packets that [Serve] sends instead of a response. They answer no query.
type Noise int

func (Noise) append(dst []byte) []byte { return dst }

// Serve runs the server side of a connection until the connection ends, and closes it. It calls
// answer for each query. These calls run concurrently. answer must return when its context is
// done. If answer returns nil, Serve sends no response. Serve returns when all calls of answer
// have returned.
func Serve(conn net.Conn, key ed25519.PrivateKey, answer func(context.Context, Message) Message) error {
	defer func() { _ = conn.Close() }()
	if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err
	}
	c, err := serverHandshake(conn, key)
	if err != nil {
		return err
	}
	if err := conn.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	for {
		payload, err := c.read(maxPacket)
		if err != nil {
			return err
		}
		r := &reader{rest: payload}
		switch r.readUint32() {
		case idPing:
			if err := c.send(appendUint64(appendUint32(nil, idPong), r.readUint64())); err != nil {
				return err
			}
		case idAuthenticate: // all clients are accepted
			if err := c.send(appendBytes(appendUint32(nil, idNonce), r.readBytes())); err != nil {
				return err
			}
		case idQuery:
			id, query := r.readHash(), r.readBytes()
			if r.err != nil {
				return r.err
			}
			running.Go(func() {
				var a Message
				if q, err := parseQuery(query); err != nil {
					a = Error{Code: 621, Message: err.Error()}
				} else if a = answer(ctx, q); a == nil {
					return
				}
				if n, ok := a.(Noise); ok {
					for range n {
						_ = c.send(nil)
					}
					return
				}
				// If send fails, read fails too and ends the loop.
				_ = c.send(appendBytes(append(appendUint32(nil, idAnswer), id[:]...), a.append(nil)))
			})
		}
	}
}
