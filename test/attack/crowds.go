package attack

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// withCrowd returns an attack by n clients that visit the server again and again for the duration d. The argument i of
// a visit is unique. The function honest is called repeatedly meanwhile and must succeed each time.
func withCrowd(d time.Duration, name string, n int, visit func(s *target, i int64) error,
	honest func(s *target) error) attack {
	return attack{name: name, want: "served", within: 30 * time.Second, do: func(s *target) (outcome, error) {
		var visitors sync.WaitGroup
		var over atomic.Bool
		var visits, failed atomic.Int64
		for range n {
			visitors.Go(func() {
				for !over.Load() {
					own := *s
					if err := visit(&own, visits.Add(1)); err != nil {
						failed.Add(1)
						time.Sleep(10 * time.Millisecond)
					}
				}
			})
		}
		defer visitors.Wait()
		defer over.Store(true)
		for end := time.Now().Add(d); time.Now().Before(end); {
			if err := errors.Join(honest(s), s.healthyFor(100*time.Millisecond)); err != nil {
				return outcome{}, err
			}
		}
		if v, f := visits.Load(), failed.Load(); f > v/2 {
			return outcome{}, fmt.Errorf("%d of %d visits failed", f, v)
		}
		return outcome{class: "served"}, nil
	}}
}

// searchers returns attacks by many clients whose subscriptions resume from the beginning of the history, match
// nothing or a few blocks, and are replaced by new ones all the time. Honest subscribers must receive live blocks, and
// stored ones from before the window.
func searchers(full bool) []attack {
	lasting, n := usual/2, 60
	if full {
		lasting, n = 4*usual, 100
	}
	cursors := map[string]func(i int64) string{
		"the beginning":     func(int64) string { return "" },
		"different cursors": func(i int64) string { return string(roundBefore(uint32(100 + i%800))) },
		"before the window": func(int64) string { return string(roundBefore(500)) },
	}
	document := func(after string, i int64) string {
		return fmt.Sprintf(`subscription{blocks(after:"%s" filter:{id:{eq:"n%d"}}){id}}`, after, i)
	}
	var all []attack
	for _, from := range []string{"the beginning", "different cursors", "before the window"} {
		after := cursors[from]
		if full || from != "before the window" {
			all = append(all, withCrowd(lasting, fmt.Sprintf("%d event streams that search from %s", n, from), n,
				func(s *target, i int64) error {
					return s.linger(streamRequest("GET", document(after(i), i)))
				}, (*target).resumes))
		}
		if full || from == "the beginning" {
			const few = `subscription{blocks(after:"%s" filter:{seq_no:{in:[%s]}}){id}}`
			name := fmt.Sprintf("%d event streams that find a few blocks from %s", n, from)
			all = append(all, withCrowd(lasting, name, n, func(s *target, i int64) error {
				return s.linger(streamRequest("GET", fmt.Sprintf(few, after(i), times(20, "#0 "))))
			}, (*target).resumes))
		}
		for _, protocol := range []string{legacy, modern} {
			if full || (protocol == modern) == (from == "before the window") {
				name := fmt.Sprintf("%d sockets that search from %s (%s)", n, from, protocol)
				all = append(all, withCrowd(lasting, name, n, func(s *target, i int64) error {
					texts := []string{`{"type":"connection_init"}`}
					for k := range int64(4) {
						search := query(document(after(i), 4*i+k))
						texts = append(texts, begin(protocol, fmt.Sprintf(`"%d"`, k), search))
					}
					return s.linger(upgrade(path, protocol), []byte(frameAll(texts)))
				}, (*target).resumes))
			}
		}
	}
	return all
}

// linger sends chunks on a new connection, and leaves after a fifth of a second.
func (s *target) linger(chunks ...[]byte) error {
	c, err := s.dial()
	if err != nil {
		return err
	}
	defer reset(c)
	for _, chunk := range chunks {
		if _, err := c.Write(chunk); err != nil {
			return err
		}
	}
	_ = c.SetReadDeadline(time.Now().Add(usual / 5))
	if n, _ := io.Copy(io.Discard, c); n == 0 {
		return errors.New("the server did not respond")
	}
	return nil
}

// leavers returns attacks by sockets that send new documents, each of which takes many milliseconds to compile, and
// leave at once. An honest client that sends a new document afterwards must not wait until theirs are compiled.
func leavers(full bool) []attack {
	n, messages := 300, 2
	if full {
		n, messages = 1000, 4
	}
	var number, honest atomic.Int64
	texts := func(protocol string) (all []string) {
		for i := range messages {
			text := strings.ReplaceAll(eight+fragmentChain(16, 8), "F", fmt.Sprintf("F%d_", number.Add(1)))
			payload := asJSON(map[string]any{"query": text, "operationName": "Q0"})
			all = append(all, begin(protocol, fmt.Sprintf(`"%d"`, i), payload))
		}
		return all
	}
	fresh := func(s *target) error {
		w, err := s.open(modern, true)
		if err != nil {
			return fmt.Errorf("%w on a socket: %w", errUnhealthy, err)
		}
		defer w.Close()
		w.wait(usual)
		w.send(textFrame(begin(modern, honestID, query(fmt.Sprintf("{h%d:info{version}}", honest.Add(1))))))
		if o, err := w.readUntil(w.isHonestReply); err != nil || o.class != "served" {
			return errors.Join(fmt.Errorf("%w on a socket with a new document: %v", errUnhealthy, o), err)
		}
		return nil
	}
	var all []attack
	for _, how := range []struct {
		name  string
		leave func(net.Conn)
	}{
		{"close their connections", func(c net.Conn) { c.Close() }},
		{"reset their connections", reset},
		{"send a close frame and close their connections", func(c net.Conn) {
			_, _ = c.Write(frame(final|opClose, "\x03\xe8"))
			c.Close()
		}},
	} {
		for _, protocol := range []string{legacy, modern} {
			if !full && (protocol == modern) != (how.name == "close their connections") {
				continue
			}
			name := fmt.Sprintf("%d sockets that send %d new documents each and %s (%s)", n, messages, how.name,
				protocol)
			all = append(all, attack{name: name, want: "served", within: 30 * usual,
				do: func(s *target) (outcome, error) {
					open := make([]*socket, n)
					for i := range open {
						var err error
						if open[i], err = s.open(protocol, true); err != nil {
							return outcome{}, err
						}
						defer open[i].Close()
					}
					for _, w := range open {
						_ = w.writeText(texts(protocol)...)
						how.leave(w.Conn)
					}
					return outcome{class: "served"}, errors.Join(fresh(s), fresh(s))
				}})
		}
	}
	return all
}

// largeBuffers returns attacks by clients that receive responses of megabytes, so that the buffers of the server grow,
// and then stay connected. Afterwards the server must have released the buffers.
func largeBuffers(full bool) []attack {
	n := 15
	if full {
		n = 60
	}
	const most = 40 << 20 // growth of the RSS while the connections are idle
	idle := func(name string, n int, request []byte, responses int) attack {
		return attack{name: fmt.Sprintf("%s on each of %d connections, and then silence", name, n), want: "held",
			within: 60 * usual, do: func(s *target) (outcome, error) {
				before, err := s.server.state()
				if err != nil {
					return outcome{}, err
				}
				var read sync.WaitGroup
				var short atomic.Int64
				slots := make(chan struct{}, 8)
				for range n {
					c, err := s.dial()
					if err != nil {
						return outcome{}, err
					}
					defer reset(c)
					_ = c.(*net.TCPConn).SetReadBuffer(4 << 20)
					_ = c.SetDeadline(time.Now().Add(time.Minute))
					slots <- struct{}{} // otherwise their responses together would exceed PendingResponseBytes
					read.Go(func() {
						defer func() { <-slots }()
						_, _ = c.Write(request)
						if _, err := io.CopyN(io.Discard, c, int64(responses)*1_700_000); err != nil {
							short.Add(1)
						}
						_ = c.SetReadDeadline(time.Now().Add(usual / 2))
						_, _ = io.Copy(io.Discard, c)
					})
				}
				read.Wait()
				if err := s.healthyFor(usual / 2); err != nil {
					return outcome{}, err
				}
				after, err := s.server.state()
				switch growth := after.RSS - before.RSS; {
				case err != nil:
					return outcome{}, err
				case short.Load() > 0:
					return outcome{}, fmt.Errorf("%d of %d connections did not receive all responses", short.Load(), n)
				case growth > most:
					return outcome{}, fmt.Errorf("idle connections keep %d bytes, want at most %d", growth, most)
				}
				return outcome{class: "held"}, nil
			}}
	}
	text := large(22)
	all := []attack{
		idle("a large response", n, request("POST", path, text, "Connection: keep-alive"), 1),
	}
	for _, protocol := range []string{legacy, modern} {
		for _, responses := range []int{1, 3} {
			if full || (protocol == modern) == (responses == 3) {
				frames := frameAll([]string{`{"type":"connection_init"}`}) + frameAll(starts(protocol, responses, text))
				all = append(all, idle(fmt.Sprintf("%d large responses (%s)", responses, protocol), n,
					append(upgrade(path, protocol), frames...), responses))
			}
		}
	}
	return all
}

// hostEvents returns attacks by many subscriptions to a host's field that has an event every few milliseconds, or
// always one. Each event is resolved for each subscription.
func hostEvents(full bool) []attack {
	lasting, n := usual/2, 10
	if full {
		lasting, n = 4*usual, 20
	}
	var all []attack
	for _, field := range []string{"ticks", "endless"} {
		for _, protocol := range []string{legacy, modern} {
			for _, reads := range []bool{true, false} {
				if !full && (protocol == modern) != reads {
					continue
				}
				name := fmt.Sprintf("%d sockets with 16 subscriptions to %s (%s)", n, field, protocol)
				if !reads {
					name += " that read nothing"
				}
				all = append(all, withConnectionsFor(lasting, name, n, func(s *target) (net.Conn, error) {
					w, err := s.open(protocol, true)
					if err != nil {
						return nil, err
					}
					w.wait(time.Minute)
					w.sendOwn(16, query("subscription{own:"+field+"}"))
					if reads {
						go func() { _, _ = w.readUntil(func(serverMessage) bool { return false }) }()
					}
					return w.Conn, nil
				}, (*target).receives))
			}
		}
		all = append(all, withConnectionsFor(lasting, fmt.Sprintf("%d event streams of %s", 10*n, field), 10*n,
			func(s *target) (net.Conn, error) {
				c, err := s.dial()
				if err == nil {
					_ = c.SetDeadline(time.Time{})
					_, err = c.Write(streamRequest("GET", "subscription{"+field+"}"))
					go func() { _, _ = io.Copy(io.Discard, c) }()
				}
				return c, err
			}, (*target).receives))
	}
	return all
}

// longFloats returns documents and variables with numbers of many digits for a host's argument of type Float.
func longFloats() []attack {
	var all []attack
	nines := strings.Repeat("9", 30_000)
	for _, number := range []string{
		"0." + nines, "1." + strings.Repeat("0", 30_000), "0." + strings.Repeat("0", 30_000) + "1", nines + ".5",
		"1e-" + strings.Repeat("0", 30_000) + "1", "0." + nines + "e-5", strings.Repeat("1", 300) + "." + nines,
	} {
		all = append(all, doc("literal "+short(number), either, "{transfers(rate:"+number+")}"),
			posted("variable "+short(number), either, func() string {
				return `{"query":"query($r:Float){transfers(rate:$r)}","variables":{"r":` + number + `}}`
			}),
			doc("default value "+short(number), either, "query($r:Float="+number+"){transfers(rate:$r)}"))
	}
	for _, number := range []string{"1e-310", "9e308"} { // almost zero, and just out of range
		values := times(88, number+" ")
		fragment := "fragment F on Subscription{blocks(filter:" +
			strings.Repeat("{seq_no:{in:["+values+"]},gen_utime:{notIn:["+values+"]},OR:", 8) + "{}" +
			strings.Repeat("}", 8) + "){id}}"
		all = append(all,
			doc("1,408 times "+number+" in 39 fragments and operations", either, fragment+
				times(31, "fragment F# on Subscription{...F}")+times(8, "subscription S#{...F}")),
			posted("1,600 times "+number+" in variables", "406|400 BAD_USER_INPUT", func() string {
				list := strings.TrimSuffix(times(100, number+","), ",")
				return `{"query":"subscription(` + times(16, "$v#:[Float] ") + `){blocks(filter:` +
					times(16, "{seq_no:{in:$v#},OR:") + "{}" + strings.Repeat("}", 16) + `){id}}","variables":{` +
					strings.TrimSuffix(times(16, `"v#":[`+list+`],`), ",") + `}}`
			}))
	}
	all = append(all, posted("32 times 1e308 as an ID", badInput, func() string {
		return `{"query":"query(` + times(32, "$v#:ID ") + `){` + times(32, "a#:transfers(id:$v#)") +
			`}","variables":{` + strings.TrimSuffix(times(32, `"v#":1e308,`), ",") + `}}`
	}))
	hundred := "0." + strings.Repeat("123456789", 12)
	return append(all,
		doc("45 aliases with 100 digits each", either, "{"+times(45, "a#:transfers(rate:"+hundred+"#)")+"}"),
		doc("a list of 90 numbers with 100 digits", either, "{transfers(rates:["+times(90, hundred+"#,")+"])}"),
		posted("a variable with 90 numbers of 1,000 digits", either, func() string {
			return `{"query":"query($r:[Float]){transfers(rates:$r)}","variables":{"r":[` +
				strings.TrimSuffix(times(90, "0."+strings.Repeat("7", 1000)+"#,"), ",") + `]}}`
		}))
}
