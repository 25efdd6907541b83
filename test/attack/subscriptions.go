package attack

import (
	"fmt"
	"strings"
)

// retained returns attacks with as many subscriptions, and as much memory for them, as the limits allow.
func retained() []attack {
	return []attack{
		subscribed("31,000 subscriptions with 4 KB of variables", "served LIMIT_EXCEEDED share of 268435456 bytes",
			1000, ofVariable(4000)),
		subscribed("102,300 subscriptions", "served LIMIT_EXCEEDED subscriptions already", 3300,
			query(`subscription{blocks(filter:{id:{eq:"none"}}){id}}`)),
	}
}

// subscribed returns an attack that starts 31 subscriptions with the given payload on each socket.
func subscribed(name, want string, sockets int, payload string) attack {
	return attack{name: name, want: want, within: 60 * usual, do: func(s *target) (outcome, error) {
		var open []*socket
		defer func() {
			for _, w := range open {
				w.Close()
			}
		}()
		for range sockets {
			w, err := s.open(modern, true)
			if err != nil {
				return outcome{}, err
			}
			open = append(open, w)
			w.sendOwn(31, payload)
		}
		if err := s.healthy(); err != nil {
			return outcome{}, err
		}
		return open[sockets-1].probe()
	}}
}

// ofVariable returns a subscription with a variable of about n bytes.
func ofVariable(n int) string {
	return `{"query":"subscription($f:String){blocks(filter:{id:{eq:$f}}){id}}","variables":{"f":"own` +
		strings.Repeat("a", n) + `"}}`
}

// sendOwn starts n operations. In each payload, it replaces "own" with a unique text, so that the
// server cannot share work between the operations.
func (w *socket) sendOwn(n int, payload string) {
	own := w.LocalAddr().String()
	for i, text := range starts(w.protocol, n, payload) {
		w.send(textFrame(strings.ReplaceAll(text, "own", fmt.Sprint(own, i))))
	}
}
