package lite

import (
	"context"
	"crypto/ed25519"
	"encoding/binary"
	"errors"
	"net"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// pair returns a Client that is connected to a server. serve runs the server side of the
// connection.
func pair(t *testing.T, serve func(net.Conn, ed25519.PrivateKey)) *Client {
	t.Helper()
	public, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	near, far := net.Pipe()
	go serve(far, key)
	ch, err := clientHandshake(near, public)
	if err != nil {
		t.Fatal(err)
	}
	return newClient(ch, new(Window))
}

func TestIdleConnectionStaysOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := pair(t, func(conn net.Conn, key ed25519.PrivateKey) {
			_ = Serve(conn, key, func(context.Context, Message) Message { return Error{Code: 1} })
		})
		defer c.Close()
		time.Sleep(10 * time.Minute)
		if _, err := c.Ask(t.Context(), GetMasterchainInfo{}); err != (Error{Code: 1}) {
			t.Errorf("Ask after ten idle minutes: got error %v, want the error of the server", err)
		}
	})
}

// TestFailedQueryMarksConnectionLost sends a query immediately after the peer has closed the
// connection. When the query fails, Lost must be closed, so that the next caller does not use the
// same connection.
func TestFailedQueryMarksConnectionLost(t *testing.T) {
	for range 300 {
		peers := make(chan net.Conn, 1)
		c := pair(t, func(conn net.Conn, key ed25519.PrivateKey) {
			_, _ = serverHandshake(conn, key)
			peers <- conn
		})
		_ = (<-peers).Close()
		_, err := c.Ask(t.Context(), GetMasterchainInfo{})
		select {
		case <-c.Lost():
		default:
			t.Errorf("Lost is not closed after Ask returned error %v", err)
		}
		if c.Close(); !errors.Is(err, ErrLost) {
			t.Fatalf("Ask: got error %v, want ErrLost", err)
		}
	}
}

// TestAnnouncedPacketNeedsNoMemory lets a peer announce the largest packet and close the connection.
func TestAnnouncedPacketNeedsNoMemory(t *testing.T) {
	c := pair(t, func(conn net.Conn, key ed25519.PrivateKey) {
		ch, err := serverHandshake(conn, key)
		if err == nil {
			_, err = ch.read(maxPacket)
		}
		if err == nil {
			head := binary.LittleEndian.AppendUint32(nil, maxPacket)
			ch.out.XORKeyStream(head, head)
			_, _ = conn.Write(head)
		}
		_ = conn.Close()
	})
	defer c.Close()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := c.Ask(t.Context(), GetMasterchainInfo{})
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; !errors.Is(err, ErrLost) || n > 1<<20 {
		t.Errorf("Ask: got error %v and %d bytes allocated, want ErrLost and at most a megabyte", err, n)
	}
}

func TestConnectionIsClosedIfPeerNeverResponds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := pair(t, func(conn net.Conn, key ed25519.PrivateKey) {
			ch, err := serverHandshake(conn, key)
			for err == nil { // reads, but never responds
				_, err = ch.read(maxPacket)
			}
		})
		begin := time.Now()
		_, err := c.Ask(t.Context(), GetMasterchainInfo{})
		if took := time.Since(begin); !errors.Is(err, ErrLost) || took > time.Minute {
			t.Errorf("Ask: got error %v after %v, want ErrLost within a minute", err, took)
		}
		c.Close()
	})
}

// TestConnectionIsClosedIfPeerFloodsIt sends packets that answer no query. Answers to queries whose callers do not
// wait any more are not a flood, nor are pongs and a few other packets.
func TestConnectionIsClosedIfPeerFloodsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		noise := make(chan int)
		c := pair(t, func(conn net.Conn, key ed25519.PrivateKey) {
			_ = Serve(conn, key, func(ctx context.Context, q Message) Message {
				select {
				case n := <-noise:
					return Noise(n)
				case <-ctx.Done():
					return nil
				}
			})
		})
		defer c.Close()
		for range 100 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, _ = c.Ask(ctx, GetMasterchainInfo{})
			cancel()
		}
		for range 100 {
			noise <- 1
		}
		time.Sleep(10 * time.Minute) // exchanges pings and pongs
		ask := func() { _, _ = c.Ask(t.Context(), GetMasterchainInfo{}) }
		go ask()
		noise <- maxNoise / 2
		synctest.Wait()
		select {
		case <-c.Lost():
			t.Fatal("the connection was closed without a flood:", c.Err())
		default:
		}
		go ask()
		noise <- 1000
		<-c.Lost()
		if err := c.Err(); !errors.Is(err, ErrFlood) {
			t.Errorf("the connection was closed because of %v, want ErrFlood", err)
		}
	})
}

// TestResponsesAreAtMostAsLongAsTheirQueryNeeds requests an account from a server that adds megabytes to a field that
// nobody reads.
func TestResponsesAreAtMostAsLongAsTheirQueryNeeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for size, want := range map[int]error{300 << 10: nil, 1 << 20: errLong} {
			c := pair(t, func(conn net.Conn, key ed25519.PrivateKey) {
				_ = Serve(conn, key, func(context.Context, Message) Message {
					return AccountState{State: make([]byte, size)}
				})
			})
			for _, q := range []Message{GetAccountState{}, Wait{Then: GetAccountState{}}} {
				if _, err := c.Ask(t.Context(), q); err != want {
					t.Errorf("%T, response of %d bytes: got error %v, want %v", q, size, err, want)
				}
			}
			if _, err := c.Ask(t.Context(), GetBlock{}); err != nil {
				t.Errorf("block of %d bytes: got error %v", size, err)
			}
			if n := c.window.Used(); n != 0 {
				t.Errorf("%d bytes are unreleased after all queries have ended", n)
			}
			c.Close()
		}
	})
}

// TestPacketsContainNothingButTheResponse uses a server that adds bytes after its response, in the same packet. The
// Window does not count them, but the packet stays in memory as long as the response.
func TestPacketsContainNothingButTheResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		response := BlockData{Data: make([]byte, 1000)}.append(nil)
		for size, want := range map[int]error{0: nil, 4: errUnexpected, 11 << 20: errUnexpected} {
			c := pair(t, func(conn net.Conn, key ed25519.PrivateKey) {
				ch, err := serverHandshake(conn, key)
				var payload []byte
				if err == nil {
					payload, err = ch.read(maxPacket)
				}
				if err == nil {
					r := &reader{rest: payload}
					r.readUint32()
					id := r.readHash()
					packet := appendBytes(append(appendUint32(nil, idAnswer), id[:]...), response)
					_ = ch.send(append(packet, make([]byte, size)...))
				}
			})
			if _, err := c.Ask(t.Context(), GetBlock{}); !errors.Is(err, want) {
				t.Errorf("%d bytes after the response: got error %v, want %v", size, err, want)
			}
			if n := c.window.Used(); n != 0 {
				t.Errorf("%d bytes are unreleased after the query has ended", n)
			}
			c.Close()
		}
	})
}
