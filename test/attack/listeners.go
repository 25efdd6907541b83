package attack

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
)

// serveWrapped serves handler on two more listeners and returns their addresses: over TLS, and over connections of
// another type than those of package net. Sockets over both have no non-blocking writes.
func serveWrapped(handler http.Handler) (secure, wrapped string) {
	s, w := httptest.NewUnstartedServer(handler), httptest.NewUnstartedServer(handler)
	w.Listener = wrapping{w.Listener}
	s.StartTLS()
	w.Start()
	return s.Listener.Addr().String(), w.Listener.Addr().String()
}

// A wrapping is a listener that wraps its connections, as netutil.LimitListener does.
type wrapping struct{ net.Listener }

func (l wrapping) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return struct{ net.Conn }{c}, err
}

// wrappedSearchers returns attacks by many sockets over TLS or from a wrapped listener, each with subscriptions that
// resume from the beginning of the history and match nothing after a long comparison. Other sockets must receive live
// blocks, and stored ones from before the window.
func wrappedSearchers(full bool) []attack {
	lasting, overTLS := usual/4, 40
	if full {
		lasting, overTLS = 4*usual, 300
	}
	const texts = `:{ne:"a",gt:"",ge:"",lt:"z",le:"z",notIn:"a"}`
	const numbers = ":{ne:-3,gt:-3,ge:-3,lt:7e9,le:7e9,notIn:-3}"
	one := "{id" + texts + ",shard" + texts + ",seq_no" + numbers + ",gen_utime" + numbers +
		",workchain_id:{ne:-3,gt:-3,ge:-3,lt:9,le:9,notIn:-3},chain_order:{lt:\"0\"}"
	filter := strings.Repeat(one+",OR:", 11) + one + strings.Repeat("}", 12)
	search := query(`subscription($f:BlockFilter=` + filter + `){blocks(after:"" filter:$f){id}}`)
	messages := []string{`{"type":"connection_init"}`}
	for i := range 10 {
		messages = append(messages, begin(modern, fmt.Sprintf(`"%d"`, i), search))
	}
	frames := frameAll(messages)
	var all []attack
	for over, n := range map[string]int{"TLS": overTLS, "a wrapped listener": 300} {
		name := fmt.Sprintf("%d sockets that search over %s", n, over)
		all = append(all, withConnectionsFor(lasting, name, n, func(s *target) (net.Conn, error) {
			addr := s.server.wrapped
			if over == "TLS" {
				addr = s.server.tls
			}
			c, err := s.dialTo(addr)
			if err != nil {
				return nil, err
			}
			var stream net.Conn = c
			if over == "TLS" {
				stream = tls.Client(c, &tls.Config{InsecureSkipVerify: true}) // #nosec G402
			}
			_, err = stream.Write(append(upgrade(path, modern), frames...))
			go func() { _, _ = io.Copy(io.Discard, stream) }()
			return c, err
		}, (*target).resumes))
	}
	return all
}
