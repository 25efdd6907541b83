package attack

import (
	"fmt"
	"strings"
)

// retained are subscriptions in numbers, which keep as much as they may.
func retained() []attack {
	return []attack{
		subscribed("31,000 subscriptions with 4 KB of variables", "served LIMIT_EXCEEDED limit of 268435456 bytes", 1000, ofVariable(4000)),
		subscribed("102,300 subscriptions", "served LIMIT_EXCEEDED subscriptions already", 3300, query(`subscription{blocks(filter:{id:{eq:"none"}}){id}}`)),
	}
}

// subscribed starts 31 subscriptions of a payload on each of some sockets.
func subscribed(name, want string, sockets int, payload string) attack {
	return attack{name: name, want: want, within: 60 * usual, do: func(s *site) (outcome, error) {
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

// ofVariable is a subscription with a variable of so many bytes.
func ofVariable(n int) string {
	return `{"query":"subscription($f:String){blocks(filter:{id:{eq:$f}}){id}}","variables":{"f":"own` + strings.Repeat("a", n) + `"}}`
}

// sendOwn starts operations of a payload in which "own" stands for what no other
// has, so that nothing is shared.
func (w *socket) sendOwn(n int, payload string) {
	own := w.LocalAddr().String()
	for i, text := range starts(w.protocol, n, payload) {
		w.send(textFrame(strings.ReplaceAll(text, "own", fmt.Sprint(own, i))))
	}
}
