package attack

import (
	"fmt"
	"net"
	"sync"
	"time"
)

// connections returns attacks with many connections that stay open, or are closed or reset.
func connections(full bool) []attack {
	numbers := []int{100, 1000}
	if full {
		numbers = append(numbers, 9000)
	}
	var all []attack
	for _, n := range numbers {
		held := func(name string, text []byte, leave func(c net.Conn)) {
			all = append(all, attack{name: fmt.Sprintf("%d connections %s", n, name), want: "cut", within: 20 * usual,
				do: func(s *target) (outcome, error) {
					return outcome{class: "cut"}, s.hold(n, text, leave, s.healthy)
				}})
		}
		begun := append(upgrade(path, legacy), textFrame(begin(legacy, `"1"`, query(liveQuery)))...)
		held("that send nothing", nil, closeConn)
		held("that send nothing and are reset", nil, reset)
		held("with half a request line", []byte("POST /op"), closeConn)
		held("with half a header", []byte("POST "+path+" HTTP/1.1\r\nHost: a\r\nX: "), reset)
		held("with half a body", request("POST", path, goodBody)[:200], reset)
		held("that are sockets and send nothing", upgrade(path, modern), closeConn)
		held("that are sockets and are reset", upgrade(path, legacy), reset)
		if n <= 1000 { // 9,000 subscribers would receive 270,000 blocks per second
			held("that subscribe and are closed", begun, closeConn)
			held("that subscribe and are reset", begun, reset)
		}
		held("in the middle of a frame", append(upgrade(path, modern), final|opText), closeConn)
		held("in the middle of a frame and reset", append(upgrade(path, modern), header(final|opText, 1000)...), reset)
		held("of event streams that are reset", streamRequest("GET", liveQuery), reset)
		held("of unread responses", request("POST", path, query("{blockchain{"+times(20,
			"a#:blocks(last:50){edges{node{id}}}")+"}}")), reset)
	}
	for _, step := range []struct {
		name string
		text []byte
	}{
		{"connect and leave", nil},
		{"ask and leave", request("POST", path, goodBody)},
		{"upgrade and leave", upgrade(path, modern)},
		{"subscribe and leave", append(upgrade(path, legacy), textFrame(begin(legacy, `"1"`, query(liveQuery)))...)},
	} {
		all = append(all, attack{name: "churn of 2000: " + step.name, want: "cut", within: 20 * usual,
			do: func(s *target) (outcome, error) {
				for range 2000 {
					c, err := s.dial()
					if err != nil {
						return outcome{}, err
					}
					_, err = c.Write(step.text)
					c.Close()
					if err != nil {
						return outcome{}, err
					}
				}
				return outcome{class: "cut"}, nil
			}})
	}
	// net/http ends the context of the request as soon as it notices the end of the connection's read side.
	either := answered + "|TIMEOUT"
	return append(all, plain("the write side closed after a request", either, func(s *target) (outcome, error) {
		return s.postThen(goodBody, func(c net.Conn) { _ = c.(*net.TCPConn).CloseWrite() })
	}), sock("the write side closed on a socket", "cut|closed", legacy, true, func(w *socket) (outcome, error) {
		_ = w.Conn.(*net.TCPConn).CloseWrite()
		return w.readUntil(w.isHonestReply)
	}), sock("a message byte by byte", "served", legacy, true, func(w *socket) (outcome, error) {
		for _, b := range textFrame(w.honestQuery()) {
			w.send([]byte{b})
			time.Sleep(time.Millisecond)
		}
		return w.readUntil(w.isHonestReply)
	}))
}

// hold opens n connections and sends text on each. It calls the function with while all connections are
// open, and finally calls leave for each connection.
func (s *target) hold(n int, text []byte, leave func(net.Conn), with func() error) error {
	conns := make([]net.Conn, 0, n)
	defer func() {
		for _, c := range conns {
			leave(c)
		}
	}()
	for range n {
		c, err := s.dial()
		if err != nil {
			return err
		}
		conns = append(conns, c)
		if _, err := c.Write(text); err != nil {
			return err
		}
	}
	return with()
}

func closeConn(c net.Conn) { c.Close() }

// reset closes a connection with a TCP RST.
func reset(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0); c.Close() }

// inParallel runs n clients in parallel and returns their common outcome. If their outcomes have
// different classes, the class of the result is "mixed".
func (s *target) inParallel(n int, do func(s *target) (outcome, error)) (outcome, error) {
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		seen  = map[string]int{}
		first error
		last  outcome
	)
	slots := make(chan struct{}, 2500) // bounds the number of concurrent clients
	for range n {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			own := *s
			o, err := do(&own)
			mu.Lock()
			defer mu.Unlock()
			seen[o.class]++
			last = o
			if first == nil {
				first = err
			}
		})
	}
	wg.Wait()
	if len(seen) > 1 {
		last = outcome{"mixed", fmt.Sprint(seen)}
	}
	return last, first
}
