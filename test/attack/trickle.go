package attack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// A trickle is how fast a slow reader reads: 30 kB a second.
const (
	trickleBytes = 3000
	trickleEach  = 100 * time.Millisecond

	// apart is the time between two answers: if more are made at once than there is
	// room for, they refuse each other.
	apart = 8 * time.Millisecond
)

// large asks for pages of 50 blocks, of 80 kB each. As many as an answer may have are 22.
func large(pages int) string {
	return query("{blockchain{" + times(pages, "a#:blocks(last:50){edges{cursor node{...N}}}") + "}}" +
		"fragment N on BlockchainBlock{id shard seq_no chain_order workchain_id gen_utime " + times(23, "b#:hash ") + "}")
}

// trickles read large answers slowly, but all the time: no write to them stalls.
// Smaller answers fill what room the large ones leave.
func trickles(full bool) []attack {
	lasting, sizes := 3*time.Second, []string{large(22), large(5), large(2)}
	if full {
		lasting = 8 * time.Second
	}
	all := []attack{{name: "a large answer that is read at once", want: answered, within: 4 * usual, do: func(s *site) (outcome, error) { return s.post(sizes[0]) }}}
	slowly := func(name string, each int, open func(s *site, text string) (net.Conn, error)) {
		i := 0
		all = append(all, slowlyRead(name, lasting, each*len(sizes), func(s *site) (net.Conn, error) {
			text := sizes[i/each%len(sizes)]
			i++
			return open(s, text)
		}))
	}
	for _, accept := range []string{"application/json", "text/event-stream"} {
		for _, n := range []int{1, 10} {
			if full || (n == 1) == (accept == "application/json") {
				slowly(fmt.Sprintf("50 HTTP/2 streams on %d connections, and smaller ones (%s)", n, accept), n, func(s *site, text string) (net.Conn, error) {
					return s.trickle2(50/n, text, accept)
				})
			}
		}
	}
	slowly("50 connections, and smaller ones", 50, func(s *site, text string) (net.Conn, error) { return s.trickle(request("POST", path, text)) })
	for _, protocol := range []string{legacy, modern} {
		if full || protocol == modern {
			slowly("50 sockets with 8 queries ("+protocol+")", 50, func(s *site, text string) (net.Conn, error) {
				return s.trickle([]byte(string(upgrade(path, protocol)) + string(textFrame(`{"type":"connection_init"}`)) + frameAll(starts(protocol, 8, text))))
			})
		}
	}
	return all
}

// slowlyRead opens connections that read slowly, and wants large answers for an
// honest client once they are behind.
func slowlyRead(name string, lasting time.Duration, n int, open func(s *site) (net.Conn, error)) attack {
	text := large(22)
	begun := time.Time{}
	return crowdedFor(lasting, name, n, func(s *site) (net.Conn, error) {
		begun = time.Now()
		return open(s)
	}, func(s *site) error {
		if time.Since(begun) < 3*usual/2 { // an answer is cut only if it is a second behind
			return nil
		}
		if o, err := s.post(text); err != nil || !o.meets(answered) {
			return fmt.Errorf("an honest large query came to %v, %w", o, errors.Join(err, errUnwell))
		}
		return nil
	})
}

// trickle asks on a connection and reads slowly.
func (s *site) trickle(text []byte) (net.Conn, error) {
	time.Sleep(apart)
	c, err := s.dial()
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Time{}) // until it is reset
	_ = c.(*net.TCPConn).SetReadBuffer(4 << 10)
	go func() { _, _ = c.Write(text) }()
	go func() {
		for range time.Tick(trickleEach) {
			if _, err := io.CopyN(io.Discard, c, trickleBytes); err != nil {
				return
			}
		}
	}()
	return c, nil
}

// trickle2 asks on n streams of a connection, whose windows it widens slowly.
func (s *site) trickle2(n int, body, accept string) (net.Conn, error) {
	c, err := s.dial2(h2Preface(16<<10, true))
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Time{})
	for i := range n {
		time.Sleep(apart)
		if _, err := c.Write(h2Post(i, body, len(body), "accept", accept)); err != nil {
			c.Close()
			return nil, err
		}
	}
	go func() { _, _ = io.Copy(io.Discard, c) }()
	go func() {
		wider := streams(n, func(i int) []byte {
			return h2Frame(h2WindowUpdate, 0, uint32(2*i+1), binary.BigEndian.AppendUint32(nil, trickleBytes))
		})
		for range time.Tick(trickleEach) {
			if _, err := c.Write(wider); err != nil {
				return
			}
		}
	}()
	return c, nil
}
