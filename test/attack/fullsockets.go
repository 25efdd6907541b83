package attack

import (
	"fmt"
	"strings"
	"time"
)

// These are the default limits on the operations of one socket.
const (
	socketSubscriptions = 256 // Limits.SocketSubscriptions
	socketQueries       = 32  // Limits.SocketQueries
)

// fullSockets returns attacks by sockets that start as many operations as the limits allow, or more.
func fullSockets(full bool) []attack {
	sockets := 20
	if full {
		sockets = 200
	}
	var all []attack
	with := func(within time.Duration, name, want string, n int, do func(s *target) (outcome, error)) {
		name = fmt.Sprintf("%s, on each of %d sockets", name, n)
		all = append(all, attack{name: name, want: want, within: within, do: func(s *target) (outcome, error) {
			return s.inParallel(n, do)
		}})
	}
	ofOne := query(fmt.Sprintf(`{blockchain{account(address:"%d:%s"){info{balance}}}}`, stalledWorkchain,
		strings.Repeat("1", 64)))
	all = append(all, attack{name: "64 queries that wait on a socket", want: "held 32", within: 4 * usual,
		do: func(s *target) (outcome, error) {
			w, err := s.open(modern, true)
			if err != nil {
				return outcome{}, err
			}
			defer w.Close()
			w.send([]byte(frameAll(starts(modern, 2*socketQueries, ofOne))))
			if err := s.healthyFor(2 * usual); err != nil {
				return outcome{}, err
			}
			held, err := s.server.state()
			return outcome{"held", fmt.Sprint(held.Stalled)}, err
		}})
	for _, protocol := range []string{legacy, modern} {
		never, small, large := query(`subscription{blocks(filter:{id:{eq:"own"}}){id}}`), query("{info{version}}"),
			large(1)
		for _, n := range []int{socketQueries, socketQueries + 1, 250} {
			with(20*usual, fmt.Sprintf("%d queries (%s)", n, protocol), "served all", sockets,
				func(s *target) (outcome, error) {
					return s.fill(protocol, 0, n, never, small)
				})
		}
		// The responses of these queries together exceed Limits.PendingSocketBytes. With more than about 16 sockets,
		// they would also exceed Limits.PendingResponseBytes, and slow clients would be cut.
		with(20*usual, "40 large queries ("+protocol+")", "served all", min(sockets/10, 12),
			func(s *target) (outcome, error) {
				return s.fill(protocol, 0, 40, never, large)
			})
		with(20*usual, "256 subscriptions and 64 queries ("+protocol+")", "served all", sockets,
			func(s *target) (outcome, error) {
				return s.fill(protocol, socketSubscriptions, 64, never, small)
			})
		with(20*usual, "257 subscriptions and 64 queries ("+protocol+")", "served all LIMIT_EXCEEDED", sockets,
			func(s *target) (outcome, error) {
				return s.fill(protocol, socketSubscriptions+1, 64, never, small)
			})
		with(20*usual, "256 subscriptions that match, and 64 queries ("+protocol+")", "served all", 4,
			func(s *target) (outcome, error) {
				return s.fill(protocol, socketSubscriptions, 64, query(liveQuery), small)
			})
	}
	return all
}

// fill opens a socket and starts the given numbers of subscriptions and queries. All queries must be
// answered. The outcome contains the first error message.
func (s *target) fill(protocol string, subscriptions, queries int, subscription, text string) (outcome, error) {
	w, err := s.open(protocol, true)
	if err != nil {
		return outcome{}, err
	}
	defer w.Close()
	w.wait(20 * usual)
	go func() {
		w.sendOwn(subscriptions, subscription)
		for i := range queries {
			w.send(textFrame(begin(protocol, fmt.Sprintf(`"q%d"`, i), text)))
		}
	}()
	answers := 0
	o, err := w.readUntil(func(m serverMessage) bool {
		if strings.HasPrefix(string(m.ID), `"q`) && (m.Type == "data" || m.Type == "next") {
			answers++
		}
		return answers == queries
	})
	if err == nil && o.class == "served" {
		o.text = "all " + o.text
	}
	return o, err
}
