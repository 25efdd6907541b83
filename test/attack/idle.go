package attack

import (
	"fmt"
	"time"
)

// idle returns attacks by many connections that become idle. Each attack stops at another stage of the
// protocol. The subscriptions filter for a block that does not exist.
func idle(full bool) []attack {
	n := 2000
	if full {
		n = 9000
	}
	never := query(`subscription{blocks(filter:{id:{eq:"none"}}){id}}`)
	first := string(textFrame(`{"type":"connection_init"}`))
	var all []attack
	for _, k := range []struct{ name, text string }{
		{"TCP alone", ""},
		{"half of the headers", "GET " + path + " HTTP/1.1\r\nHost: attacked.example\r\nX: "},
		{"a handshake alone", string(upgrade(path, modern))},
		{"connection_init alone", string(upgrade(path, modern)) + first},
		{"a subscription", string(upgrade(path, modern)) + first + string(textFrame(begin(modern, `"1"`, never)))},
		{"a subscription of the legacy protocol", string(upgrade(path, legacy)) + first +
			string(textFrame(begin(legacy, `"1"`, never)))},
		{"an event stream", string(streamRequest("GET", `subscription{blocks(filter:{id:{eq:"none"}}){id}}`))},
	} {
		all = append(all, attack{name: fmt.Sprintf("%d idle: %s", n, k.name), want: "held", within: 20 * usual,
			do: func(s *target) (outcome, error) {
				before, err := s.server.state()
				if err != nil {
					return outcome{}, err
				}
				o := outcome{class: "held"}
				err = s.hold(n, []byte(k.text), closeConn, func() error {
					if o.text, err = s.cost(before, n); err != nil {
						return err
					}
					return s.healthy()
				})
				if err == nil {
					_, err = s.server.settled(before, maxRest) // because the next attack compares with this state
				}
				return o, err
			}})
	}
	return all
}

// maxEach is the maximum number of bytes that the server may keep in memory for one idle client.
const maxEach = 64 << 10

// cost waits until n clients are connected and returns a text with the server's memory per client. It
// returns an error if that exceeds maxEach.
func (s *target) cost(before state, n int) (string, error) {
	for deadline := time.Now().Add(4 * usual); ; time.Sleep(50 * time.Millisecond) {
		now, err := s.server.state()
		if err != nil {
			return "", err
		}
		each := (now.RSS - before.RSS) / int64(n)
		switch connected := now.Files >= n; { // the server has only a few other files
		case connected && each > maxEach:
			return "", fmt.Errorf("each of %d connections needs %d bytes of memory, limit %d", n, each, maxEach)
		case connected:
			return fmt.Sprintf("for %d bytes each", each), nil
		case time.Now().After(deadline):
			return "", fmt.Errorf("server has only %d open files for %d connections", now.Files, n)
		}
	}
}
