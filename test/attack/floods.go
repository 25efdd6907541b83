package attack

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// floods returns attacks with large numbers of messages, operations and clients.
func floods() []attack {
	const enough = "closed 1008|closed 4400|cut"
	const orServed = enough + "|served" // the server does not read a socket while its queries wait
	const kept = "served LIMIT_EXCEEDED limit of 4096 bytes"
	var all []attack
	for _, protocol := range []string{legacy, modern} {
		stop := map[string]string{legacy: `{"type":"stop","id":"1"}`, modern: `{"type":"complete","id":"1"}`}[protocol]
		many := func(name, want string, n int, text func(i int) string) *attack {
			var b bytes.Buffer
			for i := range n {
				b.Write(textFrame(text(i)))
			}
			a := framed(fmt.Sprintf("%s, %d (%s)", name, n, protocol), want, protocol, b.Bytes())
			a.within = 5 * usual
			all = append(all, a)
			return &all[len(all)-1]
		}
		live := query(liveQuery)
		for _, n := range []int{1000, 20_000} {
			many("stops of unknown operations", enough, n, func(int) string { return stop })
			many("starts", enough, n, func(i int) string { return begin(protocol, fmt.Sprintf(`"%d"`, i), live) })
			many("queries", orServed, n, func(i int) string {
				return begin(protocol, fmt.Sprintf(`"%d"`, i), query("{info{version}}"))
			})
			many("refused operations", enough, n, func(i int) string {
				return begin(protocol, fmt.Sprintf(`"%d"`, i), query("{nothing}"))
			})
			many("starts and stops", enough, n, func(i int) string {
				if i%2 == 0 {
					return begin(protocol, `"1"`, live)
				}
				return stop
			})
			many("protocol pings", enough, n, func(int) string { return `{"type":"ping"}` })
			many("wrong types", enough, n, func(int) string { return `{"type":"x"}` })
		}
		keys := "{" + times(7000, `"#":1,`) + `"type":"ping"}`
		many("pings of 60 kB with 7,000 keys", "served", 300, func(int) string { return keys }).cpu = 8 * documentCPU
		for _, n := range []int{1, 8} {
			expensive := begin(protocol, `"1"`, query("{blockchain{"+times(20,
				"a#:blocks(last:50){edges{node{id hash}}}")+"}}"))
			all = append(all, withConnections(fmt.Sprintf("endless expensive queries on %d sockets (%s)", n, protocol),
				n, func(s *target) (net.Conn, error) {
					return s.floodOperations(protocol, expensive)
				}))
		}
		for _, p := range []struct{ name, want, payload string }{
			{"all blocks", "served|cut", query(`subscription{blocks(after:""){` + times(40, "a#:chain_order ") + "}}")},
			{"memory of long lists", kept,
				`{"query":"subscription($f:[String]){blocks(filter:{id:{in:$f}}){id}}","variables":{"f":[` +
					strings.TrimSuffix(strings.Repeat(`"own`+strings.Repeat("a", 250)+`",`, 100), ",") + `]}}`},
			{"memory of long strings", kept, ofVariable(50_000)},
			{"memory of undeclared variables", "served",
				`{"query":"subscription{blocks(filter:{id:{eq:\"a\"}}){id}}","variables":{"f":"own` +
					strings.Repeat("a", 50_000) + `"}}`},
		} {
			all = append(all, attack{name: "255 operations on each of 5 sockets: " + p.name + " (" + protocol + ")",
				want: p.want, within: 20 * usual, do: func(s *target) (outcome, error) {
					return s.inParallel(5, func(s *target) (outcome, error) {
						w, err := s.open(protocol, true)
						if err != nil {
							return outcome{}, err
						}
						defer w.Close()
						w.sendOwn(255, p.payload)
						return w.probe()
					})
				}})
		}
	}
	for _, q := range []struct {
		name, text string
		clients    int // 1,500 clients that read pages would delay blocks by 2 s on two cores
	}{
		{"pages", query("{blockchain{" + times(20, "a#:blocks(last:50){edges{node{id hash}}}") + "}}"), 400},
		{"balances", query("{blockchain{" +
			times(40, `a#:account(address:"#:`+strings.Repeat("1", 64)+`"){info{balance}}`) + "}}"), 1500},
		{"the schema", query("{__schema{types{name description fields{name description " +
			"args{name description type{name}}type{name}}}}}"), 1500},
	} {
		for _, n := range []int{100, q.clients} {
			// Limits on concurrent work may refuse some of the clients.
			all = append(all, attack{name: fmt.Sprintf("%d concurrent clients ask for %s", n, q.name),
				want: "answered|503 SERVICE_UNAVAILABLE|LIMIT_EXCEEDED|mixed", within: 20 * usual,
				do: func(s *target) (outcome, error) {
					return s.inParallel(n, func(s *target) (outcome, error) { return s.post(q.text) })
				}})
		}
	}
	return all
}

// floodOperations opens a socket that starts the same operation with new ids as fast as the server reads,
// and discards all responses.
func (s *target) floodOperations(protocol, operation string) (net.Conn, error) {
	w, err := s.open(protocol, true)
	if err != nil {
		return nil, err
	}
	_ = w.SetDeadline(time.Time{}) // no deadline: the caller resets the connection
	go func() { _, _ = io.Copy(io.Discard, w.r) }()
	go func() {
		for i := 0; ; i++ {
			text := strings.Replace(operation, `"1"`, fmt.Sprintf(`"%d"`, i), 1)
			if _, err := w.Write(textFrame(text)); err != nil {
				return
			}
		}
	}()
	return w.Conn, nil
}
