package attack

import (
	"fmt"
	"net"
	"strings"
	"time"
)

// much returns a query of the maximum cost: 50 pages of 50 blocks.
func much() string {
	return query("{blockchain{" + times(50, "a#:blocks(last:50){edges{cursor node{id hash shard seq_no chain_order workchain_id gen_utime __typename}}}") + "}}")
}

// during repeats the health check for d and returns its first error.
func (s *site) during(d time.Duration) error {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if err := s.healthy(); err != nil {
			return err
		}
	}
	return nil
}

// crowded opens n connections and requires for 4 seconds that honest clients are served.
func crowded(name string, n int, open func(s *site) (net.Conn, error)) attack {
	return crowdedFor(4*time.Second, name, n, open, func(s *site) error { return nil })
}

// crowdedFor is like crowded for a time d. The function honest must succeed repeatedly, too.
func crowdedFor(d time.Duration, name string, n int, open func(s *site) (net.Conn, error), honest func(s *site) error) attack {
	return attack{name: name, want: "held", within: 30 * time.Second, do: func(s *site) (outcome, error) {
		var conns []net.Conn
		defer func() {
			for _, c := range conns {
				reset(c)
			}
		}()
		for range n {
			c, err := open(s)
			if err != nil {
				return outcome{}, err
			}
			conns = append(conns, c)
		}
		for end := time.Now().Add(d); time.Now().Before(end); {
			if err := honest(s); err != nil {
				return outcome{}, err
			}
			if err := s.during(100 * time.Millisecond); err != nil {
				return outcome{}, err
			}
		}
		return outcome{class: "held"}, nil
	}}
}

// streams concatenates the frames of n streams.
func streams(n int, text func(i int) []byte) []byte {
	var all []byte
	for i := range n {
		all = append(all, text(i)...)
	}
	return all
}

// slowBodies returns more incomplete bodies than the server accepts requests at once.
func slowBodies() []attack {
	var all []attack
	for _, k := range []struct {
		name string
		sent string
	}{
		{"a byte", "{"}, {"a kilobyte", strings.Repeat(" ", 1000)}, {"all but a byte", strings.Repeat(" ", 99_999)},
	} {
		head := request("POST", path, strings.Repeat(" ", 100_000))
		head = append(head[:len(head)-100_000:len(head)-100_000], k.sent...)
		if len(k.sent) < 10_000 { // longer bodies would overload the machine, not the server
			all = append(all, crowded("1200 incomplete bodies with "+k.name, 1200, func(s *site) (net.Conn, error) {
				c, err := s.dial()
				if err == nil {
					_, err = c.Write(head)
				}
				return c, err
			}))
		}
		all = append(all, crowded("22 HTTP/2 connections with 95 incomplete bodies with "+k.name, 22, func(s *site) (net.Conn, error) {
			return s.dial2(h2Preface(65535, false), streams(95, func(i int) []byte {
				return h2Post(i, k.sent[:min(len(k.sent), 10_000)], 100_000)
			}))
		}))
	}
	return all
}

// unreadAnswers returns requests on streams and sockets whose large responses are never read.
func unreadAnswers() []attack {
	text := much()
	all := []attack{plain("a response that is read", answered, func(s *site) (outcome, error) { return s.post(text) })}
	for _, k := range []struct {
		name   string
		window uint32
		wide   bool
	}{
		{"without a window", 0, false}, {"with the usual window", 65535, false}, {"with an unlimited window", 1<<31 - 1, true},
	} {
		for _, accept := range []string{"application/json", "text/event-stream"} {
			all = append(all, crowded(fmt.Sprintf("11 HTTP/2 connections with 95 streams %s (%s)", k.name, accept), 11, func(s *site) (net.Conn, error) {
				return s.dial2(h2Preface(k.window, k.wide), streams(95, func(i int) []byte { return h2Post(i, text, len(text), "accept", accept) }))
			}))
		}
	}
	all = append(all, crowded("100 connections of unread responses", 100, func(s *site) (net.Conn, error) {
		c, err := s.dial()
		if err == nil {
			_, err = c.Write(request("POST", path, text, "Connection: keep-alive"))
		}
		return c, err
	}))
	for _, protocol := range []string{legacy, modern} {
		for _, k := range []struct{ sockets, queries int }{{6, 32}, {32, 32}, {200, 32}, {32, 500}} {
			all = append(all, crowded(fmt.Sprintf("%d deaf sockets with %d queries (%s)", k.sockets, k.queries, protocol), k.sockets, func(s *site) (net.Conn, error) {
				c, err := s.dial()
				if err != nil {
					return nil, err
				}
				said := string(upgrade(path, protocol)) + string(textFrame(`{"type":"connection_init"}`)) + frameAll(starts(protocol, k.queries, text))
				go func() { _, _ = c.Write([]byte(said)) }() // until the server stops reading
				return c, nil
			}))
		}
	}
	return all
}

// longHeaders returns headers that are expensive to parse.
func longHeaders() []attack {
	var all []attack
	for _, name := range []string{"Accept", "Content-Type"} {
		for _, item := range []string{"a/b,", "a/b;c=d,", "a/b;q=0.1,", ";a=b", `;a="`, ",", "*/*;*=a,", "a/b;a*0=x;a*1=y,"} {
			text := name + ": application/json" + strings.Repeat(item, 900_000/len(item))
			all = append(all, attack{name: name + " of 900 kB of " + item, want: "406 NOT_ACCEPTABLE|415 UNSUPPORTED_MEDIA_TYPE", within: usual, cpu: 40 * time.Millisecond, do: func(s *site) (outcome, error) {
				return s.post(goodBody, text)
			}})
		}
	}
	return all
}
