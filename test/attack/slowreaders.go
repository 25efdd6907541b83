package attack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

const (
	// A slow reader reads readBytes every readInterval, which is 30 kB per second.
	readBytes    = 3000
	readInterval = 100 * time.Millisecond

	// requestInterval is the time between two requests. Without it, the server would refuse large
	// responses, because together they would exceed a memory limit.
	requestInterval = 8 * time.Millisecond
)

// large returns a query for the given number of pages. A page has 50 blocks and 80 kB. The maximum size
// of a response permits 22 pages.
func large(pages int) string {
	return query("{blockchain{" + times(pages, "a#:blocks(last:50){edges{cursor node{...N}}}") + "}}" +
		"fragment N on BlockchainBlock{id shard seq_no chain_order workchain_id gen_utime " +
		times(23, "b#:hash ") + "}")
}

// slowReads returns attacks by clients that read responses slowly but steadily, so that no write
// stalls. They request large responses first, and then smaller ones that fill the rest of the memory
// limit. Only the first attack reads its response at full speed. If full is true, the attacks last
// longer and include more combinations of transport and format.
func slowReads(full bool) []attack {
	lasting, sizes := 3*time.Second, []string{large(22), large(5), large(2)}
	if full {
		lasting = 8 * time.Second
	}
	all := []attack{{name: "a large response that is read at full speed", want: answered, within: 4 * usual,
		do: func(s *target) (outcome, error) {
			return s.post(sizes[0])
		}}}
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
				slowly(fmt.Sprintf("50 HTTP/2 streams on %d connections, and smaller ones (%s)", n, accept), n,
					func(s *target, text string) (net.Conn, error) {
						return s.readSlowly2(50/n, text, accept)
					})
			}
		}
	}
	slowly("50 connections, and smaller ones", 50, func(s *target, text string) (net.Conn, error) {
		return s.readSlowly(request("POST", path, text))
	})
	slowly("51 event streams of large events", 17, func(s *target, _ string) (net.Conn, error) {
		return s.readSlowly(streamRequest("GET", "subscription{large}"))
	})
	for _, protocol := range []string{legacy, modern} {
		if full || protocol == modern {
			slowly("51 sockets with large events ("+protocol+")", 17, func(s *target, _ string) (net.Conn, error) {
				return s.readSlowly([]byte(string(upgrade(path, protocol)) +
					string(textFrame(`{"type":"connection_init"}`)) +
					frameAll(starts(protocol, 1, query("subscription{large}")))))
			})
			slowly("50 sockets with 8 queries ("+protocol+")", 50, func(s *target, text string) (net.Conn, error) {
				return s.readSlowly([]byte(string(upgrade(path, protocol)) +
					string(textFrame(`{"type":"connection_init"}`)) + frameAll(starts(protocol, 8, text))))
			})
		}
	}
	return all
}

// slowlyRead returns an attack by connections that read slowly. While they lag, an honest client must
// still receive large responses.
func slowlyRead(name string, lasting time.Duration, n int, open func(s *target) (net.Conn, error)) attack {
	text := large(22)
	begun := time.Time{}
	return withConnectionsFor(lasting, name, n, func(s *target) (net.Conn, error) {
		begun = time.Now()
		return open(s)
	}, func(s *target) error {
		// The server aborts a slow response only if the client lags by more than a second.
		if time.Since(begun) < 3*usual/2 {
			return nil
		}
		if o, err := s.post(text); err != nil || !o.meets(answered) {
			return fmt.Errorf("honest query for a large response: outcome %v, %w", o, errors.Join(err, errUnhealthy))
		}
		return nil
	})
}

// readSlowly sends a request on a new connection and reads the response slowly.
func (s *target) readSlowly(text []byte) (net.Conn, error) {
	time.Sleep(requestInterval)
	c, err := s.dial()
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Time{}) // no deadline: the caller resets the connection
	_ = c.(*net.TCPConn).SetReadBuffer(4 << 10)
	go func() { _, _ = c.Write(text) }()
	go func() {
		for range time.Tick(readInterval) {
			if _, err := io.CopyN(io.Discard, c, readBytes); err != nil {
				return
			}
		}
	}()
	return c, nil
}

// readSlowly2 sends n requests on one HTTP/2 connection and slowly extends the flow-control windows of
// their streams.
func (s *target) readSlowly2(n int, body, accept string) (net.Conn, error) {
	c, err := s.dial2(h2Preface(16<<10, true))
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Time{})
	for i := range n {
		time.Sleep(requestInterval)
		if _, err := c.Write(h2Post(i, body, len(body), "accept", accept)); err != nil {
			c.Close()
			return nil, err
		}
	}
	go func() { _, _ = io.Copy(io.Discard, c) }()
	go func() {
		updates := streams(n, func(i int) []byte {
			return h2Frame(h2WindowUpdate, 0, uint32(2*i+1), binary.BigEndian.AppendUint32(nil, readBytes))
		})
		for range time.Tick(readInterval) {
			if _, err := c.Write(updates); err != nil {
				return
			}
		}
	}()
	return c, nil
}
