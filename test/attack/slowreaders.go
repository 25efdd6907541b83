package attack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// A slow reader reads 30 kB per second: trickleBytes every trickleEach.
const (
	trickleBytes = 3000
	trickleEach  = 100 * time.Millisecond

	// apart is the time between two requests. Simultaneous large responses would exceed the limit
	// and be refused.
	apart = 8 * time.Millisecond
)

// large returns a query for pages of 50 blocks, 80 kB each. A response may contain 22 of them.
func large(pages int) string {
	return query("{blockchain{" + times(pages, "a#:blocks(last:50){edges{cursor node{...N}}}") + "}}" +
		"fragment N on BlockchainBlock{id shard seq_no chain_order workchain_id gen_utime " + times(23, "b#:hash ") + "}")
}

// trickles returns attacks by clients that read responses slowly but steadily, so that no write stalls: first large
// responses, then smaller ones that fill the rest of the memory limit. Only the first attack reads at once. If full is
// set, the attacks last longer and include more combinations of transport and format.
func slowReads(full bool) []attack {
	lasting, sizes := 3*time.Second, []string{large(22), large(5), large(2)}
	if full {
		lasting = 8 * time.Second
	}
	all := []attack{{name: "a large answer that is read at once", want: answered, within: 4 * usual, do: func(s *target) (outcome, error) { return s.post(sizes[0]) }}}
	slowly := func(name string, each int, open func(s *target, text string) (net.Conn, error)) {
		i := 0
		all = append(all, slowlyRead(name, lasting, each*len(sizes), func(s *target) (net.Conn, error) {
			text := sizes[i/each%len(sizes)]
			i++
			return open(s, text)
		}))
	}
	for _, accept := range []string{"application/json", "text/event-stream"} {
		for _, n := range []int{1, 10} {
			if full || (n == 1) == (accept == "application/json") {
				slowly(fmt.Sprintf("50 HTTP/2 streams on %d connections, and smaller ones (%s)", n, accept), n, func(s *target, text string) (net.Conn, error) {
					return s.trickle2(50/n, text, accept)
				})
			}
		}
	}
	slowly("50 connections, and smaller ones", 50, func(s *target, text string) (net.Conn, error) { return s.trickle(request("POST", path, text)) })
	for _, protocol := range []string{legacy, modern} {
		if full || protocol == modern {
			slowly("50 sockets with 8 queries ("+protocol+")", 50, func(s *target, text string) (net.Conn, error) {
				return s.trickle([]byte(string(upgrade(path, protocol)) + string(textFrame(`{"type":"connection_init"}`)) + frameAll(starts(protocol, 8, text))))
			})
		}
	}
	return all
}

// slowlyRead opens connections that read slowly. Once they lag, an honest client must still receive
// large responses.
func slowlyRead(name string, lasting time.Duration, n int, open func(s *target) (net.Conn, error)) attack {
	text := large(22)
	begun := time.Time{}
	return withConnectionsFor(lasting, name, n, func(s *target) (net.Conn, error) {
		begun = time.Now()
		return open(s)
	}, func(s *target) error {
		if time.Since(begun) < 3*usual/2 { // a response is aborted only if it is a second late
			return nil
		}
		if o, err := s.post(text); err != nil || !o.meets(answered) {
			return fmt.Errorf("an honest large query: outcome %v, %w", o, errors.Join(err, errUnhealthy))
		}
		return nil
	})
}

// trickle sends a request and reads the response slowly.
func (s *target) trickle(text []byte) (net.Conn, error) {
	time.Sleep(apart)
	c, err := s.dial()
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Time{}) // no deadline: the caller resets the connection
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

// trickle2 sends n requests on one HTTP/2 connection and extends the stream windows slowly.
func (s *target) trickle2(n int, body, accept string) (net.Conn, error) {
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
