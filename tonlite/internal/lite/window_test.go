package lite

import (
	"context"
	"crypto/ed25519"
	"net"
	"testing"
	"testing/synctest"
)

// TestNothingIsReadWhileWindowIsFull uses a server that sends six responses of three megabytes. A
// client that has not released two of them must read no third one.
func TestNothingIsReadWhileWindowIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const queries, size = 6, 3 << 20
		c := pair(t, func(conn net.Conn, key ed25519.PrivateKey) {
			ch, err := serverHandshake(conn, key)
			var ids [][32]byte
			for err == nil && len(ids) < queries {
				var payload []byte
				payload, err = ch.read(maxPacket)
				r := &reader{rest: payload}
				r.readUint32()
				ids = append(ids, r.readHash())
			}
			message := BlockData{Data: make([]byte, size)}.append(nil)
			for i := 0; err == nil && i < queries; i++ {
				err = ch.send(appendBytes(append(appendUint32(nil, idAnswer), ids[i][:]...), message))
			}
		})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		releases := make(chan func(), queries)
		for range queries {
			go func() {
				if _, release, err := c.Query(ctx, GetBlock{}); err == nil {
					releases <- release
				}
			}()
			synctest.Wait()
		}
		for read := 2; read <= 4; read++ {
			synctest.Wait()
			if n := c.window.Used() / size; n != 2 || len(releases) != 2 {
				t.Errorf("%d responses are unreleased and %d were returned, want 2", n, len(releases))
			}
			(<-releases)()
		}
		synctest.Wait()
		cancel() // ends the last query
		synctest.Wait()
		for len(releases) > 0 {
			(<-releases)()
		}
		if n := c.window.Used(); n != 0 {
			t.Errorf("%d bytes are unreleased after all queries have ended", n)
		}
		c.window.add(windowSize + 1)
		c.Close() // must not wait for the Window
	})
}
