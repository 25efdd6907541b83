// Package lite is the protocol of lite servers, both ends of it: encrypted
// packets over TCP, queries and answers on them, and the messages that are
// needed here. It takes what a peer sends for what it is, bytes of a stranger:
// nothing in it panics, and nothing is read without a limit.
package lite

import (
	"context"
	"crypto/cipher"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/xssnick/tonutils-go/adnl"
)

const (
	maxPacket    = 16 << 20 // past the largest block
	handshake    = 256      // bytes: key id, client's key, checksum, secrets
	secrets      = 160      // bytes of randomness that become the keys of both directions
	writeTimeout = time.Second
)

// ErrHandshake says that the peer hung up in the handshake: it has another key
// than it was taken to have.
var ErrHandshake = errors.New("the server refused the handshake: has it another key?")

var errPacket = errors.New("a packet is damaged")

// A channel carries packets, encrypted by what was agreed in its handshake.
type channel struct {
	conn    net.Conn
	in, out cipher.Stream
	write   sync.Mutex
}

// dial connects to the server that has a key. The context bounds it.
func dial(ctx context.Context, addr string, key ed25519.PublicKey) (*channel, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	giveUp := context.AfterFunc(ctx, func() { _ = conn.Close() })
	c, err := greet(conn, key)
	if !giveUp() { // the connection was closed under our hands
		return nil, context.Cause(ctx)
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return c, nil
}

// greet is the client's side of the handshake.
func greet(conn net.Conn, key ed25519.PublicKey) (*channel, error) {
	_, own, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, err
	}
	shared, err := adnl.SharedKey(own, key)
	if err != nil {
		return nil, fmt.Errorf("the server's key is no key: %w", err)
	}
	secret := make([]byte, secrets)
	if _, err := rand.Read(secret); err != nil {
		return nil, err
	}
	sum := sha256.Sum256(secret)
	sealed, err := sealing(shared, sum)
	if err != nil {
		return nil, err
	}
	c := &channel{conn: conn}
	if c.in, c.out, err = streams(secret); err != nil {
		return nil, err
	}
	hello := make([]byte, 0, handshake)
	id := KeyID(key)
	hello = append(hello, id[:]...)
	hello = append(hello, own.Public().(ed25519.PublicKey)...)
	hello = append(hello, sum[:]...)
	hello = hello[:handshake]
	sealed.XORKeyStream(hello[handshake-secrets:], secret)
	if _, err := conn.Write(hello); err != nil {
		return nil, err
	}
	switch welcome, err := c.read(); {
	case errors.Is(err, io.EOF), errors.Is(err, errPacket):
		return nil, ErrHandshake
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrHandshake, err)
	case len(welcome) > 0:
		return nil, errPacket
	}
	return c, nil
}

// accept is the server's side of the handshake.
func accept(conn net.Conn, key ed25519.PrivateKey) (*channel, error) {
	hello := make([]byte, handshake)
	if _, err := io.ReadFull(conn, hello); err != nil {
		return nil, err
	}
	if [32]byte(hello[:32]) != KeyID(key.Public().(ed25519.PublicKey)) {
		return nil, ErrHandshake
	}
	shared, err := adnl.SharedKey(key, hello[32:64])
	if err != nil {
		return nil, err
	}
	sealed, err := sealing(shared, [32]byte(hello[64:96]))
	if err != nil {
		return nil, err
	}
	secret := hello[handshake-secrets:]
	sealed.XORKeyStream(secret, secret)
	if sha256.Sum256(secret) != [32]byte(hello[64:96]) {
		return nil, ErrHandshake
	}
	c := &channel{conn: conn}
	if c.out, c.in, err = streams(secret); err != nil {
		return nil, err
	}
	return c, c.send(nil)
}

// sealing is the cipher of the handshake itself.
func sealing(shared []byte, sum [32]byte) (cipher.Stream, error) {
	key := append(append([]byte{}, shared[:16]...), sum[16:]...)
	iv := append(append([]byte{}, sum[:4]...), shared[20:32]...)
	return adnl.NewCipherCtr(key, iv)
}

// streams are the ciphers to and from the client.
func streams(secret []byte) (to, from cipher.Stream, err error) {
	if to, err = adnl.NewCipherCtr(secret[:32], secret[64:80]); err != nil {
		return nil, nil, err
	}
	from, err = adnl.NewCipherCtr(secret[32:64], secret[80:96])
	return to, from, err
}

// read returns the next packet's payload. One goroutine reads.
func (c *channel) read() ([]byte, error) {
	head := make([]byte, 4)
	if _, err := io.ReadFull(c.conn, head); err != nil {
		return nil, err
	}
	c.in.XORKeyStream(head, head)
	n := binary.LittleEndian.Uint32(head)
	if n < 64 || n > maxPacket {
		return nil, errPacket
	}
	packet := make([]byte, n)
	if _, err := io.ReadFull(c.conn, packet); err != nil {
		return nil, err
	}
	c.in.XORKeyStream(packet, packet)
	body, sum := packet[:n-32], packet[n-32:]
	if sha256.Sum256(body) != [32]byte(sum) {
		return nil, errPacket
	}
	return body[32:], nil // past the nonce
}

// send writes one packet, in a second or not at all.
func (c *channel) send(payload []byte) error {
	packet := make([]byte, 4+32, 4+64+len(payload))
	binary.LittleEndian.PutUint32(packet, uint32(64+len(payload)))
	if _, err := rand.Read(packet[4:]); err != nil {
		return err
	}
	packet = append(packet, payload...)
	sum := sha256.Sum256(packet[4:])
	packet = append(packet, sum[:]...)

	c.write.Lock()
	defer c.write.Unlock()
	c.out.XORKeyStream(packet, packet)
	if err := c.conn.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	if _, err := c.conn.Write(packet); err != nil {
		_ = c.conn.Close() // half a packet may be out
		return err
	}
	return nil
}
