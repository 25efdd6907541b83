package attack

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// Maximum times until the server closes a slow connection. They include at least a second more than the
// timeout, because the machine may be busy.
const (
	bodyCut   = 6 * time.Second  // after Limits.BodyTimeout or the host's ReadHeaderTimeout
	answerCut = 7 * time.Second  // after Limits.WriteTimeout for a stalled response
	frameCut  = 6 * time.Second  // after an incomplete message
	pongCut   = 10 * time.Second // after two missed pongs
	initCut   = 11 * time.Second // without connection_init in the modern protocol
	firstCut  = 61 * time.Second // without connection_init or an operation in the legacy protocol
	streamCut = 12 * time.Second // after a stalled write on a stream or socket
)

// sendSlowly sends head at once. Then it sends the bytes of rest one at a time, with a pause before
// each byte and repeatedly from the start, until stop is called. The caller reads the response.
func sendSlowly(c net.Conn, head, rest string, pause time.Duration) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		if _, err := io.WriteString(c, head); err != nil || rest == "" {
			return
		}
		for i := 0; ; i = (i + 1) % len(rest) {
			select {
			case <-done:
				return
			case <-time.After(pause):
			}
			if _, err := c.Write([]byte{rest[i]}); err != nil {
				return
			}
		}
	}()
	return func() { close(done); c.Close(); <-ended }
}

// slowPeers returns attacks by peers that send bodies, headers or frames slowly or incompletely, or
// that do not read.
func slowPeers(full bool) []attack {
	var all []attack
	with := func(within time.Duration, a attack) { a.within = within; all = append(all, a) }
	slowly := func(name, want string, within time.Duration, head, drops string, pause time.Duration) {
		with(within, plain(name, want, func(s *target) (outcome, error) {
			c, err := s.dial()
			if err != nil {
				return outcome{}, err
			}
			defer sendSlowly(c, head, drops, pause)()
			return readPostResponse(c)
		}))
	}
	const tooSlow = "408 TIMEOUT|cut"
	head := string(request("POST", path, strings.Repeat(" ", 10_000)))
	head = head[:len(head)-10_000]
	chunked := string(request("POST", path, "", "Content-Length:", "Transfer-Encoding: chunked"))
	slowly("a body that never comes", tooSlow, bodyCut, head, "", 0)
	slowly("a body of a byte a second", tooSlow, bodyCut, head, "{ ", time.Second)
	slowly("a body of a byte in 10 ms", tooSlow, bodyCut, head, " ", 10*time.Millisecond)
	slowly("half a body", tooSlow, bodyCut, head+`{"query":`, "", 0)
	slowly("a body without its last byte", tooSlow, bodyCut, head+strings.Repeat(" ", 9999), "", 0)
	slowly("a body after Expect", tooSlow, bodyCut, strings.Replace(head, "Host:", "Expect: 100-continue\r\nHost:", 1),
		"", 0)
	slowly("chunks that never come", tooSlow, bodyCut, chunked, "", 0)
	slowly("half a chunk's size", tooSlow, bodyCut, chunked+"ff", "", 0)
	slowly("an endless chunk size", tooSlow+"|400", bodyCut, chunked, "0", 50*time.Millisecond)
	slowly("half a chunk", tooSlow, bodyCut, chunked+"ff\r\n{", "", 0)
	slowly("a chunk of 4 GiB", tooSlow, bodyCut, chunked+"ffffffff\r\n"+goodBody, "", 0)
	slowly("chunks of a byte", tooSlow, bodyCut, chunked, "1\r\n \r\n", 20*time.Millisecond)
	slowly("chunks without the last one", tooSlow, bodyCut, chunked+fmt.Sprintf("%x\r\n%s\r\n", len(goodBody),
		goodBody), "", 0)
	slowly("endless trailers", tooSlow+"|answered|400", bodyCut,
		chunked+fmt.Sprintf("%x\r\n%s\r\n0\r\n", len(goodBody), goodBody), "X: a\r\n", 20*time.Millisecond)
	slowly("a slow body of GET", answered, bodyCut, string(request("GET", path+"?query={info{version}}", "",
		"Content-Length: 100")), "a", 100*time.Millisecond)
	slowly("a slow body of an unsupported type", "415", usual,
		strings.Replace(head, "application/json", "text/plain", 1), " ", 100*time.Millisecond)
	slowly("a slow body without access", "401", usual, strings.Replace(head, path, "/locked/graphql", 1), " ",
		100*time.Millisecond)
	slowly("a slow body that is too large", "413", usual, strings.Replace(head, "10000", "1000000", 1), " ",
		100*time.Millisecond)
	slowly("a slow body of PUT", "405", usual, strings.Replace(head, "POST", "PUT", 1), " ", 100*time.Millisecond)
	slowly("a slow body with an unsupported Accept", "406", usual,
		strings.Replace(head, "Accept: application/graphql-response+json", "Accept: image/png", 1), " ",
		100*time.Millisecond)
	slowly("a slow body of a stream", "events TIMEOUT|408 TIMEOUT|cut", bodyCut,
		strings.Replace(head, "Accept: application/graphql-response+json", "Accept: text/event-stream", 1), " ",
		100*time.Millisecond)
	slowly("a slow body of a handshake by POST", "415", bodyCut,
		strings.Replace(string(upgrade(path, modern, "Content-Length: 100")), "GET", "POST", 1), " ",
		100*time.Millisecond)
	// The ReadHeaderTimeout of the http.Server, 5 s, ends these connections.
	slowly("nothing at all", "cut|net/http", bodyCut, "", "", 0)
	slowly("a request line byte by byte", "cut|net/http", bodyCut, "", "GET /open/graphql", 100*time.Millisecond)
	slowly("headers byte by byte", "cut|net/http", bodyCut, "GET "+path+" HTTP/1.1\r\n", "X: a\r\n",
		100*time.Millisecond)
	with(bodyCut+usual, plain("forty slow bodies", tooSlow, func(s *target) (outcome, error) {
		return s.inParallel(40, func(s *target) (outcome, error) {
			c, err := s.dial()
			if err != nil {
				return outcome{}, err
			}
			defer sendSlowly(c, head, " ", 200*time.Millisecond)()
			return readPostResponse(c)
		})
	}))
	with(bodyCut, plain("a body that is declared empty and never ends (HTTP/2)", "TIMEOUT",
		func(s *target) (outcome, error) {
			c, err := s.dial2(h2Preface(65535, false), h2Unended())
			if err != nil {
				return outcome{}, err
			}
			defer c.Close()
			for text := make([]byte, 0, 64<<10); len(text) < cap(text); {
				n, err := c.Read(text[len(text):cap(text)])
				if err != nil {
					return ended(err)
				}
				if text = text[:len(text)+n]; bytes.Contains(text, []byte(`"code":"TIMEOUT"`)) {
					return outcome{class: "TIMEOUT"}, nil
				}
			}
			return outcome{class: "mixed"}, nil
		}))
	all = append(all, slowReaders()...)
	return append(all, slowSockets(full)...)
}

// slowReaders returns attacks by peers that do not read responses.
func slowReaders() []attack {
	much := query("{blockchain{" + times(40, "a#:blocks(last:50){edges{node{id hash shard chain_order}}}") + "}}")
	replay := `subscription{blocks(after:""){` + times(45, "a#:chain_order ") + "}}"
	unread := func(name, want string, within, rest time.Duration, text string) attack {
		return attack{name: name, want: want, within: within + usual, do: func(s *target) (outcome, error) {
			c, err := s.dial()
			if err != nil {
				return outcome{}, err
			}
			defer sendSlowly(c, text, "", 0)()
			time.Sleep(rest)
			// The peer first receives data that was in flight. Then the connection must end.
			_ = c.SetReadDeadline(time.Now().Add(usual))
			_, err = io.Copy(io.Discard, c)
			if err == nil {
				return outcome{class: "cut"}, nil
			}
			return ended(err)
		}}
	}
	post := string(request("POST", path, much, "Connection: keep-alive"))
	all := []attack{
		unread("a hundred unread responses", "cut", answerCut+2*usual, answerCut, strings.Repeat(post, 100)),
		unread("ten thousand unread responses to OPTIONS", "cut", answerCut+2*usual, answerCut,
			strings.Repeat(string(request("OPTIONS", path, "", "Connection: keep-alive")), 10_000)),
		unread("an unread stream", "cut", streamCut+2*usual, streamCut, string(streamRequest("POST", replay))),
		unread("an unread socket", "cut", streamCut+2*usual, streamCut,
			string(upgrade(path, legacy))+string(textFrame(begin(legacy, `"1"`, query(replay))))),
		unread("an unread socket with 256 operations", "cut", streamCut+2*usual, streamCut,
			string(upgrade(path, legacy))+string(textFrame(strings.Join(starts(legacy, 1, query(replay)),
				"")))+frameAll(starts(legacy, 256, query(replay)))),
	}
	pings := strings.Repeat(string(frame(final|opPing, strings.Repeat("a", 125))), 20_000)
	for _, protocol := range []string{legacy, modern} {
		all = append(all, unread("unread pongs ("+protocol+")", "cut", streamCut+2*usual, streamCut,
			string(upgrade(path, protocol))+pings))
	}
	twenty := all[2]
	twenty.name = "twenty unread streams"
	one := twenty.do
	twenty.do = func(s *target) (outcome, error) { return s.inParallel(20, one) }
	return append(all, twenty)
}

func frameAll(texts []string) string {
	var b strings.Builder
	for _, text := range texts {
		b.Write(textFrame(text))
	}
	return b.String()
}

// slowSockets returns attacks by sockets that stall within a frame or between frames.
func slowSockets(full bool) []attack {
	var all []attack
	for _, protocol := range []string{legacy, modern} {
		stall := func(name, want string, within time.Duration, chunk []byte) {
			a := sock(name+" ("+protocol+")", want, protocol, true, func(w *socket) (outcome, error) {
				w.send(chunk)
				return w.end()
			})
			a.within = within
			all = append(all, a)
		}
		const gone = "cut|closed"
		stall("a byte of a frame", gone, frameCut, []byte{final | opText})
		stall("half a header", gone, frameCut, header(final|opText, 1000)[:3])
		stall("a header without its mask", gone, frameCut, header(final|opText, 10)[:4])
		stall("a header alone", gone, frameCut, header(final|opText, 1000))
		stall("a payload without its last byte", gone, frameCut, append(header(final|opText, 100), make([]byte, 99)...))
		stall("half a ping", gone, frameCut, append(header(final|opPing, 10), 'a'))
		stall("half a close", gone, frameCut, append(header(final|opClose, 10), 3))
		stall("a fragment without an end", gone, frameCut, frame(opText, "{"))
		stall("a length of 2^31", gone, frameCut, append(header(final|opText, 1<<31), make([]byte, 1<<10)...))
		stall("a length of 2^63-1", gone, frameCut, append(header(final|opText, 1<<63-1), make([]byte, 1<<10)...))
		stall("half a frame with operations running", gone, frameCut,
			append([]byte(frameAll(starts(protocol, 32, query(liveQuery)))), final|opText))
		slow := sock("a frame byte by byte ("+protocol+")", gone, protocol, true, func(w *socket) (outcome, error) {
			defer sendSlowly(w.Conn, string(header(final|opText, 10_000)), " ", 100*time.Millisecond)()
			return w.end()
		})
		slow.within = frameCut
		pieces := sock("fragments with pauses ("+protocol+")", gone, protocol, true, func(w *socket) (outcome, error) {
			w.send(frame(opText, "{"))
			stop := make(chan struct{})
			defer close(stop)
			go func() {
				for {
					select {
					case <-stop:
						return
					case <-time.After(usual / 2):
						w.send(frame(opContinue, " "))
					}
				}
			}()
			return w.end()
		})
		pieces.within = frameCut
		// This client discards pings and therefore sends no pongs.
		silentPeer := sock("no pong ("+protocol+")", gone, protocol, true, func(w *socket) (outcome, error) {
			_, err := io.Copy(io.Discard, w.r)
			if err == nil {
				return outcome{class: "cut"}, nil
			}
			return ended(err)
		})
		silentPeer.within = pongCut
		forty := plain("forty sockets that stall within a frame ("+protocol+")", gone,
			func(s *target) (outcome, error) {
				return s.inParallel(40, func(s *target) (outcome, error) {
					w, err := s.open(protocol, true)
					if err != nil {
						return outcome{}, err
					}
					defer w.Close()
					w.send(header(final|opText, 1000)[:3])
					return w.end()
				})
			})
		forty.within = frameCut + usual
		all = append(all, slow, pieces, silentPeer, forty)
	}
	silent := func(name, want, protocol string, within time.Duration, texts ...string) attack {
		a := plain(name, want, func(s *target) (outcome, error) {
			w, err := s.open(protocol, false)
			if err != nil {
				return outcome{}, err
			}
			defer w.Close()
			w.send([]byte(frameAll(texts)))
			w.wait(within + usual)
			return w.end()
		})
		a.within = within
		return a
	}
	all = append(all, silent("no connection_init", "closed 4408", modern, initCut))
	if full {
		const unused = "closed 1008 connection_error TIMEOUT"
		all = append(all, silent("no messages", unused, legacy, firstCut))
		for _, text := range []string{
			`{"type":"stop","id":"1"}`, `{"type":"x"}`, "{", begin(legacy, `"1"`, query("{nothing}")),
			begin(legacy, `"1"`, query("{info{version}}")),
		} {
			all = append(all, silent("a message alone: "+short(text), "closed 1008", legacy, firstCut, text))
		}
	}
	half := plain("half a handshake", "cut|net/http", func(s *target) (outcome, error) {
		c, err := s.dial()
		if err != nil {
			return outcome{}, err
		}
		defer c.Close()
		if _, err := c.Write(upgrade(path, modern)[:100]); err != nil {
			return ended(err)
		}
		return readResponse(bufio.NewReader(c), "GET")
	})
	half.within = bodyCut
	return append(all, half)
}

// end reads messages and replies to pings until the connection ends.
func (w *socket) end() (outcome, error) {
	return w.readUntil(func(serverMessage) bool { return false })
}
