package lite

import (
	"context"
	"crypto/ed25519"
	"net"
	"sync"
	"time"
)

// Serve speaks the server's side on a connection until that ends, and closes
// it. Queries are answered concurrently by answer, which returns when its
// context is done; nil is no answer at all. Serve returns when none runs.
func Serve(conn net.Conn, key ed25519.PrivateKey, answer func(context.Context, Message) Message) error {
	defer func() { _ = conn.Close() }()
	if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err
	}
	c, err := accept(conn, key)
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
		payload, err := c.read()
		if err != nil {
			return err
		}
		r := &reader{rest: payload}
		switch r.number() {
		case idPing:
			if err := c.send(long(number(nil, idPong), r.long())); err != nil {
				return err
			}
		case idAuthenticate: // whoever it is may ask
			if err := c.send(text(number(nil, idNonce), r.text())); err != nil {
				return err
			}
		case idQuery:
			id, query := r.hash(), r.text()
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
				_ = c.send(text(append(number(nil, idAnswer), id[:]...), a.append(nil))) // else the reading side ends
			})
		}
	}
}
