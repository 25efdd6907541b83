package attack

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"
)

// These are the WebSocket subprotocols.
const (
	legacy = "graphql-ws"
	modern = "graphql-transport-ws"
)

// A socket is a WebSocket client that encodes frames itself, so that it can send invalid frames.
type socket struct {
	net.Conn
	r        *bufio.Reader
	protocol string
}

// These are the opcodes, the FIN bit and the mask bit of frames.
const (
	opContinue = 0x0
	opText     = 0x1
	opBinary   = 0x2
	opClose    = 0x8
	opPing     = 0x9
	opPong     = 0xa
	final      = 0x80
	masked     = 0x80
)

// upgrade returns the request of a WebSocket handshake. Each line of headers replaces the default
// header with the same name.
func upgrade(path, protocol string, headers ...string) []byte {
	usual := []string{
		"Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Protocol: " + protocol,
	}
	var kept []string
	for _, line := range usual {
		name, _, _ := strings.Cut(line, ":")
		replaced := false
		for _, h := range headers {
			replaced = replaced || strings.HasPrefix(strings.ToLower(h), strings.ToLower(name)+":")
		}
		if !replaced {
			kept = append(kept, line)
		}
	}
	for _, h := range headers {
		if !strings.HasSuffix(h, ":") {
			kept = append(kept, h)
		}
	}
	return request("GET", path, "", append(kept, "Accept:")...)
}

// open opens a socket. If ready is true, open also sends connection_init and waits for the
// acknowledgment.
func (s *target) open(protocol string, ready bool) (*socket, error) {
	c, err := s.dial()
	if err != nil {
		return nil, err
	}
	w := &socket{c, bufio.NewReaderSize(c, 512), protocol}
	if err := w.begin(ready); err != nil {
		c.Close()
		return nil, err
	}
	return w, nil
}

func (w *socket) begin(ready bool) error {
	if _, err := w.Write(upgrade(path, w.protocol)); err != nil {
		return err
	}
	resp, err := http.ReadResponse(w.r, nil)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		return fmt.Errorf("handshake was refused with status %d", resp.StatusCode)
	}
	if !ready {
		return nil
	}
	if err := w.writeText(`{"type":"connection_init","payload":{}}`); err != nil {
		return err
	}
	text, err := w.next()
	if err == nil && !strings.Contains(text, "connection_ack") {
		err = fmt.Errorf("received %.200q instead of an acknowledgment", text)
	}
	return err
}

// frame returns a masked frame. The argument first is its first byte: the FIN bit, reserved bits and
// opcode.
func frame(first byte, payload string) []byte {
	return append(header(first, uint64(len(payload))), payload...) // the mask is zero, so the payload is unchanged
}

// header returns a frame header with a mask of zeros.
func header(first byte, length uint64) []byte {
	h := []byte{first, masked}
	switch {
	case length < 126:
		h[1] |= byte(length)
	case length < 1<<16:
		h[1] |= 126
		h = binary.BigEndian.AppendUint16(h, uint16(length))
	default:
		h[1] |= 127
		h = binary.BigEndian.AppendUint64(h, length)
	}
	return append(h, 0, 0, 0, 0)
}

func textFrame(text string) []byte { return frame(final|opText, text) }

// writeText sends one text message for each text.
func (w *socket) writeText(texts ...string) error {
	var b []byte
	for _, text := range texts {
		b = append(b, textFrame(text)...)
	}
	_, err := w.Write(b)
	return err
}

// A closeError reports a close frame from the server.
type closeError struct{ code uint16 }

func (e *closeError) Error() string { return fmt.Sprintf("closed %d", e.code) }

// next returns the next text message. Meanwhile, it replies to pings.
func (w *socket) next() (string, error) {
	for {
		var h [2]byte
		if _, err := io.ReadFull(w.r, h[:]); err != nil {
			return "", err
		}
		n := uint64(h[1] & 0x7f)
		var wide [8]byte
		if more := map[uint64]int{126: 2, 127: 8}[n]; more > 0 {
			if _, err := io.ReadFull(w.r, wide[8-more:]); err != nil {
				return "", err
			}
			n = binary.BigEndian.Uint64(wide[:])
		}
		if n > maxResponse || h[1]&masked != 0 {
			return "", fmt.Errorf("invalid frame from the server: % x", h)
		}
		payload := make([]byte, n)
		if _, err := io.ReadFull(w.r, payload); err != nil {
			return "", err
		}
		switch h[0] & 0x0f {
		case opText:
			return string(payload), nil
		case opPing:
			if _, err := w.Write(frame(final|opPong, string(payload))); err != nil {
				return "", err
			}
		case opClose:
			code := uint16(1005)
			if len(payload) >= 2 {
				code = binary.BigEndian.Uint16(payload)
			}
			return "", &closeError{code}
		}
	}
}

// A serverMessage is a message from the server in either protocol.
type serverMessage struct {
	Type    string
	ID      json.RawMessage
	Payload json.RawMessage
}

const honestID = `"honest"`

// probe sends an honest query and reads messages until the response arrives or the connection ends.
func (w *socket) probe() (outcome, error) {
	w.send(textFrame(w.honestQuery()))
	return w.readUntil(w.isHonestReply)
}

func (w *socket) honestQuery() string {
	start := map[string]string{legacy: "start", modern: "subscribe"}[w.protocol]
	return `{"id":` + honestID + `,"type":"` + start + `","payload":{"query":"{info{version}}"}}`
}

// isHonestReply reports whether m is the response to the honest query, or the error that refuses it.
func (w *socket) isHonestReply(m serverMessage) bool {
	return string(m.ID) == honestID && (m.Type == "data" || m.Type == "next" || m.Type == "error")
}

// readUntil reads messages until done returns true or the connection ends. The outcome contains the
// first error message.
func (w *socket) readUntil(done func(m serverMessage) bool) (outcome, error) {
	heard := outcome{class: "served"}
	for range 100_000 {
		text, err := w.next()
		var closed *closeError
		switch {
		case errors.As(err, &closed):
			heard.class = closed.Error()
			return heard, nil
		case err != nil:
			o, err := ended(err)
			return outcome{o.class, heard.text}, err
		case strings.Contains(text, "INTERNAL_SERVER_ERROR") || revealsInternals(text):
			return heard, fmt.Errorf("a message reveals internals: %.300q", text)
		}
		var m serverMessage
		if err := json.Unmarshal([]byte(text), &m); err != nil {
			return heard, fmt.Errorf("a message is not a JSON object: %.300q", text)
		}
		last := done(m)
		if last && m.Type == "error" {
			heard.class = "refused"
		}
		if heard.text == "" && strings.Contains(m.Type, "error") {
			heard.text = fmt.Sprintf("%s %.250s", m.Type, m.Payload)
		}
		if heard.text == "" && strings.Contains(string(m.Payload), `"errors":`) {
			heard.text = fmt.Sprintf("data with errors %.250s", m.Payload)
		}
		if last {
			return heard, nil
		}
	}
	return heard, errors.New("received 100,000 messages but not the expected one")
}

// send writes hostile bytes. It ignores errors, because the server may close the connection at any
// time.
func (w *socket) send(chunks ...[]byte) {
	for _, chunk := range chunks {
		if _, err := w.Write(chunk); err != nil {
			return
		}
	}
}

// framed returns an attack that sends chunks of bytes on a socket after connection_init, and then an
// honest query.
func framed(name, want, protocol string, chunks ...[]byte) attack {
	return sock(name, want, protocol, true, func(w *socket) (outcome, error) {
		// The query must follow all chunks, even if writing them takes long.
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			w.send(append(slices.Clip(chunks), textFrame(w.honestQuery()))...)
		}()
		defer func() { w.Close(); <-sent }()
		return w.readUntil(w.isHonestReply)
	})
}

// talk returns an attack that sends text messages and then an honest query. If ready is true, it sends
// connection_init first.
func talk(name, want, protocol string, ready bool, texts ...string) attack {
	return sock(name, want, protocol, ready, func(w *socket) (outcome, error) {
		var all []byte
		for _, text := range texts {
			all = append(all, textFrame(text)...)
		}
		w.send(all)
		return w.probe()
	})
}

// sock returns an attack that opens a socket and calls do with it.
func sock(name, want, protocol string, ready bool, do func(w *socket) (outcome, error)) attack {
	return plain(name, want, func(s *target) (outcome, error) {
		w, err := s.open(protocol, ready)
		if err != nil {
			return outcome{}, err
		}
		defer w.Close()
		return do(w)
	})
}

// opening returns an attack that consists of a WebSocket handshake.
func opening(name, want string, handshake []byte) attack {
	return plain(name, want, func(s *target) (outcome, error) {
		c, err := s.dial()
		if err != nil {
			return outcome{}, err
		}
		defer c.Close()
		if _, err := c.Write(handshake); err != nil {
			return ended(err)
		}
		r := bufio.NewReader(c)
		if status, err := r.Peek(12); err == nil && string(status[9:]) == "101" {
			return outcome{"served", "101"}, nil
		}
		return readResponse(r, "GET")
	})
}

// openAndAsk opens a socket for a project, sends one message and then an honest query, and returns the
// outcome of the query.
func (s *target) openAndAsk(project, protocol, text string) (outcome, error) {
	c, err := s.dial()
	if err != nil {
		return outcome{}, err
	}
	defer c.Close()
	w := &socket{c, bufio.NewReader(c), protocol}
	if _, err := w.Write(upgrade("/"+project+"/graphql", protocol)); err != nil {
		return outcome{}, err
	}
	resp, err := http.ReadResponse(w.r, nil)
	if err != nil {
		return ended(err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		return outcome{}, fmt.Errorf("handshake was refused with status %d", resp.StatusCode)
	}
	w.send(textFrame(text))
	return w.probe()
}

// wait sets the deadline of the connection to d from now.
func (w *socket) wait(d time.Duration) { _ = w.SetDeadline(time.Now().Add(d)) }
