// Package lite implements the client side and the server side of the lite server protocol:
// encrypted packets over TCP, the queries and responses in these packets, and the messages that
// tonlite needs. Peers are not trusted. No input causes a panic, and the size of each packet is
// limited.
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
	// maxPacket is the maximum size of a packet in bytes. The largest response contains an account
	// with as many cells and bits as the network allows, about 10 MB.
	maxPacket     = 12 << 20
	firstPart     = 64 << 10 // bytes of a packet for which memory is allocated before any of them arrives
	minPacket     = 64       // bytes of the nonce and the checksum
	handshakeSize = 256      // bytes of the key id, the client's key, the checksum and the secret
	secretSize    = 160      // bytes of the random secret, which contains the keys of both ciphers
	writeTimeout  = time.Second
)

// ErrHandshake is returned if the peer closes the connection during the handshake. The usual
// reason is that the peer has another key.
var ErrHandshake = errors.New("the server rejected the handshake: it may have another key")

var errMalformed = errors.New("malformed packet")

// A channel sends and receives packets. They are encrypted with keys from the handshake.
type channel struct {
	conn    net.Conn
	in, out cipher.Stream
	write   sync.Mutex
}

// connect runs the handshake on conn. The server must prove that it has the private key for key. ctx
// limits the time. If connect returns an error, it has closed conn.
func connect(ctx context.Context, conn net.Conn, key ed25519.PublicKey) (*channel, error) {
	giveUp := context.AfterFunc(ctx, func() { _ = conn.Close() })
	c, err := clientHandshake(conn, key)
	if !giveUp() { // ctx is done, and the connection was closed
		return nil, context.Cause(ctx)
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return c, nil
}

// clientHandshake runs the client side of the handshake.
func clientHandshake(conn net.Conn, key ed25519.PublicKey) (*channel, error) {
	_, own, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, err
	}
	shared, err := adnl.SharedKey(own, key)
	if err != nil {
		return nil, fmt.Errorf("malformed server key: %w", err)
	}
	secret := make([]byte, secretSize)
	if _, err := rand.Read(secret); err != nil {
		return nil, err
	}
	sum := sha256.Sum256(secret)
	sealed, err := handshakeCipher(shared, sum)
	if err != nil {
		return nil, err
	}
	c := &channel{conn: conn}
	if c.in, c.out, err = channelCiphers(secret); err != nil {
		return nil, err
	}
	hello := make([]byte, 0, handshakeSize)
	id := KeyID(key)
	hello = append(hello, id[:]...)
	hello = append(hello, own.Public().(ed25519.PublicKey)...)
	hello = append(hello, sum[:]...)
	hello = hello[:handshakeSize]
	sealed.XORKeyStream(hello[handshakeSize-secretSize:], secret)
	if _, err := conn.Write(hello); err != nil {
		return nil, err
	}
	switch _, err := c.read(minPacket); { // the server confirms with an empty packet
	case errors.Is(err, io.EOF), errors.Is(err, errMalformed):
		return nil, ErrHandshake
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrHandshake, err)
	}
	return c, nil
}

// serverHandshake runs the server side of the handshake.
func serverHandshake(conn net.Conn, key ed25519.PrivateKey) (*channel, error) {
	hello := make([]byte, handshakeSize)
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
	sealed, err := handshakeCipher(shared, [32]byte(hello[64:96]))
	if err != nil {
		return nil, err
	}
	secret := hello[handshakeSize-secretSize:]
	sealed.XORKeyStream(secret, secret)
	if sha256.Sum256(secret) != [32]byte(hello[64:96]) {
		return nil, ErrHandshake
	}
	c := &channel{conn: conn}
	if c.out, c.in, err = channelCiphers(secret); err != nil {
		return nil, err
	}
	return c, c.send(nil)
}

// handshakeCipher returns the cipher that encrypts the secret in the handshake.
func handshakeCipher(shared []byte, sum [32]byte) (cipher.Stream, error) {
	key := append(append([]byte{}, shared[:16]...), sum[16:]...)
	iv := append(append([]byte{}, sum[:4]...), shared[20:32]...)
	return adnl.NewCipherCtr(key, iv)
}

// channelCiphers returns the cipher for packets to the client and the cipher for packets from the
// client.
func channelCiphers(secret []byte) (to, from cipher.Stream, err error) {
	if to, err = adnl.NewCipherCtr(secret[:32], secret[64:80]); err != nil {
		return nil, nil, err
	}
	from, err = adnl.NewCipherCtr(secret[32:64], secret[80:96])
	return to, from, err
}

// read returns the payload of the next packet, which may have at most limit bytes. Only one
// goroutine may call read.
func (c *channel) read(limit uint32) ([]byte, error) {
	head := make([]byte, 4)
	if _, err := io.ReadFull(c.conn, head); err != nil {
		return nil, err
	}
	c.in.XORKeyStream(head, head)
	n := binary.LittleEndian.Uint32(head)
	if n < minPacket || n > limit {
		return nil, errMalformed
	}
	var packet []byte
	for len(packet) < int(n) { // the peer may send less than it announces
		more := make([]byte, min(int(n), max(firstPart, 8*len(packet))))
		if _, err := io.ReadFull(c.conn, more[copy(more, packet):]); err != nil {
			return nil, err
		}
		packet = more
	}
	c.in.XORKeyStream(packet, packet)
	body, sum := packet[:n-32], packet[n-32:]
	if sha256.Sum256(body) != [32]byte(sum) {
		return nil, errMalformed
	}
	return body[32:], nil // without the nonce
}

// send writes one packet. If this fails or takes longer than a second, send closes the
// connection.
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
		_ = c.conn.Close() // because a part of the packet may have been sent
		return err
	}
	return nil
}
