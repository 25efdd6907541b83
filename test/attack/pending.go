package attack

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

// expensiveQuery returns a query that has the maximum permitted cost. It reads 50 pages of 50 blocks.
func expensiveQuery() string {
	const fields = "id hash shard seq_no chain_order workchain_id gen_utime __typename"
	return query("{blockchain{" + times(50, "a#:blocks(last:50){edges{cursor node{"+fields+"}}}") + "}}")
}

// healthyFor repeats the health check for the duration d and returns its first error.
func (s *target) healthyFor(d time.Duration) error {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if err := s.healthy(); err != nil {
			return err
		}
	}
	return nil
}

// withConnections returns an attack that opens n connections and keeps them open for four seconds.
// Meanwhile, honest clients must be served.
func withConnections(name string, n int, open func(s *target) (net.Conn, error)) attack {
	return withConnectionsFor(4*time.Second, name, n, open, func(s *target) error { return nil })
}

// withConnectionsFor is like withConnections, but keeps the connections open for the duration d. The
// function honest is called repeatedly and must succeed each time.
func withConnectionsFor(d time.Duration, name string, n int, open func(s *target) (net.Conn, error),
	honest func(s *target) error) attack {
	return attack{name: name, want: "held", within: 30 * time.Second, do: func(s *target) (outcome, error) {
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
			if err := s.healthyFor(100 * time.Millisecond); err != nil {
				return outcome{}, err
			}
		}
		return outcome{class: "held"}, nil
	}}
}

// streams concatenates text(0), ..., text(n-1), which are the frames of n streams.
func streams(n int, text func(i int) []byte) []byte {
	var all []byte
	for i := range n {
		all = append(all, text(i)...)
	}
	return all
}

// slowBodies returns attacks that send incomplete bodies, more than the server accepts at once.
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
			all = append(all, withConnections("1200 incomplete bodies with "+k.name, 1200,
				func(s *target) (net.Conn, error) {
					c, err := s.dial()
					if err == nil {
						_, err = c.Write(head)
					}
					return c, err
				}))
		}
		all = append(all, withConnections("22 HTTP/2 connections with 95 incomplete bodies with "+k.name, 22,
			func(s *target) (net.Conn, error) {
				return s.dial2(h2Preface(65535, false), streams(95, func(i int) []byte {
					return h2Post(i, k.sent[:min(len(k.sent), 10_000)], 100_000)
				}))
			}))
	}
	return all
}

// slowBodiesAfterResponses returns an attack by connections that each read a response of 80 kB and then send an
// incomplete body. The buffers of the responses must not stay with the bodies.
func slowBodiesAfterResponses() []attack {
	text := large(1)
	head := request("POST", path, strings.Repeat(" ", 100_000))
	head = head[:len(head)-99_999]
	open := func(s *target) (net.Conn, error) {
		c, err := s.dial()
		if err != nil {
			return nil, err
		}
		if _, err := c.Write(request("POST", path, text, "Connection: keep-alive")); err != nil {
			return c, err
		}
		if o, err := readPostResponse(c); err != nil || !o.meets(answered) {
			return c, fmt.Errorf("outcome %v, %w", o, errors.Join(err, errUnhealthy))
		}
		_, err = c.Write(head)
		return c, err
	}
	name := "800 responses, each followed by an incomplete body"
	return []attack{withConnectionsFor(time.Second, name, 800, open, func(s *target) error { return nil })}
}

// manyLocations returns a request with an invalid document of 16 kB, whose response has 350 kB: each of the ten errors
// has about 1,350 locations.
func manyLocations() string {
	var b strings.Builder
	for i := range 5 {
		fmt.Fprintf(&b, "subscription A%d{...F}", i)
	}
	b.WriteString("fragment F on Subscription{blocks{id}")
	b.WriteString(strings.Repeat("...{"+strings.Repeat("__typename ", 8)+"}", 168))
	return `{"query":"` + b.String() + `}"}`
}

// unreadResponses returns attacks that request large responses and never read them.
func unreadResponses() []attack {
	text := expensiveQuery()
	all := []attack{plain("a response that is read", answered, func(s *target) (outcome, error) {
		return s.post(text)
	})}
	for _, k := range []struct {
		name   string
		window uint32
		wide   bool
	}{
		{"without a window", 0, false}, {"with the usual window", 65535, false},
		{"with an unlimited window", 1<<31 - 1, true},
	} {
		for _, accept := range []string{"application/json", "text/event-stream"} {
			all = append(all, withConnections(fmt.Sprintf("11 HTTP/2 connections with 95 streams %s (%s)", k.name,
				accept), 11, func(s *target) (net.Conn, error) {
				return s.dial2(h2Preface(k.window, k.wide), streams(95, func(i int) []byte {
					return h2Post(i, text, len(text), "accept", accept)
				}))
			}))
		}
	}
	invalid := manyLocations()
	all = append(all, withConnections("22 HTTP/2 connections with 95 streams of errors with many locations", 22,
		func(s *target) (net.Conn, error) {
			return s.dial2(h2Preface(0, false), streams(95, func(i int) []byte {
				accept := []string{"application/json", "text/event-stream"}[i%2]
				return h2Post(i, invalid, len(invalid), "accept", accept)
			}))
		}))
	all = append(all, withConnections("100 connections of unread responses", 100, func(s *target) (net.Conn, error) {
		c, err := s.dial()
		if err == nil {
			_, err = c.Write(request("POST", path, text, "Connection: keep-alive"))
		}
		return c, err
	}))
	for _, protocol := range []string{legacy, modern} {
		for _, k := range []struct{ sockets, queries int }{{6, 32}, {32, 32}, {200, 32}, {32, 500}} {
			all = append(all, withConnections(fmt.Sprintf("%d sockets that do not read, with %d queries (%s)",
				k.sockets, k.queries, protocol), k.sockets, func(s *target) (net.Conn, error) {
				c, err := s.dial()
				if err != nil {
					return nil, err
				}
				sent := string(upgrade(path, protocol)) + string(textFrame(`{"type":"connection_init"}`)) +
					frameAll(starts(protocol, k.queries, text))
				go func() { _, _ = c.Write([]byte(sent)) }() // until the server stops reading
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
		for _, item := range []string{"a/b,", "a/b;c=d,", "a/b;q=0.1,", ";a=b", `;a="`, ",", "*/*;*=a,",
			"a/b;a*0=x;a*1=y,"} {
			text := name + ": application/json" + strings.Repeat(item, 900_000/len(item))
			all = append(all, attack{name: name + " of 900 kB of " + item,
				want: "406 NOT_ACCEPTABLE|415 UNSUPPORTED_MEDIA_TYPE", within: usual, cpu: 40 * time.Millisecond,
				do: func(s *target) (outcome, error) {
					return s.post(goodBody, text)
				}})
		}
	}
	return all
}
