package chaos_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/coder/websocket"
)

// document is the document that all subscribers send. It selects chain_order to recognize blocks, and
// cursor, because clients need it to resume.
const document = `subscription($filter: BlockFilter, $after: String) {
  blocks(filter: $filter, after: $after) { id seq_no workchain_id shard gen_utime chain_order cursor }
}`

// openTimeout is the maximum time for opening a connection.
const openTimeout = 10 * time.Second

// A transport is one of the three ways to subscribe.
type transport struct {
	name string

	// connect opens one connection and subscribes. It reports blocks, and ends of subscriptions, to the
	// subscribers of p. When the connection has ended, connect returns the reason.
	connect func(ctx context.Context, p *peer) (reason string)

	byID bool // events have ids, with which clients can resume
}

var transports = []transport{
	{"graphql-ws", overLegacySocket, false},
	{"graphql-transport-ws", overModernSocket, false},
	{"event stream", overEventStream, true},
}

func overLegacySocket(ctx context.Context, p *peer) string {
	return overSocket(ctx, p, "graphql-ws", "start")
}

func overModernSocket(ctx context.Context, p *peer) string {
	return overSocket(ctx, p, "graphql-transport-ws", "subscribe")
}

// variables returns the variables of the document. If the cursor after is empty, the stream starts with
// the next block, or with the first one if the subscriber begins before that.
func (s *subscriber) variables(after string) map[string]any {
	v := map[string]any{"filter": json.RawMessage(s.filter.json)}
	if after != "" || s.begins < 0 {
		v["after"] = after
	}
	return v
}

// A socket is a WebSocket connection of a peer.
type socket struct {
	*websocket.Conn
	peer      *peer
	startType string // type of the message that starts an operation
	service   int    // number of the service that accepted the connection
}

// unexpected is the reason for the end of a connection that the peer closes because the service violates
// the protocol.
const unexpected = "protocol violation"

func overSocket(ctx context.Context, p *peer, protocol, start string) string {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	dialling, stop := context.WithTimeout(ctx, openTimeout)
	conn, res, err := websocket.Dial(dialling, p.url, &websocket.DialOptions{
		HTTPClient: p.client, Subprotocols: []string{protocol},
	})
	stop()
	if err != nil {
		return "dial: " + err.Error()
	}
	c := &socket{conn, p, start, serviceOf(res)}
	defer func() { _ = c.CloseNow() }()
	err = c.Write(ctx, websocket.MessageText, []byte(`{"type":"connection_init"}`))
	if err == nil && start == "subscribe" { // this protocol requires that the client waits for the ack
		_, _, err = c.Read(ctx)
	}
	for _, s := range p.subs {
		if err == nil {
			err = c.begin(ctx, s)
		}
	}
	if err == nil && p.ticks {
		err = c.start(ctx, "ticks", map[string]any{"query": `subscription{tick}`})
	}
	for err == nil {
		var frame []byte
		if _, frame, err = c.Read(ctx); err == nil && !c.handle(ctx, frame) {
			return unexpected
		}
	}
	if status := websocket.CloseStatus(err); status != -1 && status != websocket.StatusGoingAway {
		p.wrong("service closed the socket with an unexpected status: %v", err)
	}
	return err.Error()
}

// serviceOf returns the number of the service that sent the response.
func serviceOf(res *http.Response) int {
	n, _ := strconv.Atoi(res.Header.Get(serviceHeader))
	return n
}

// start sends the message that starts an operation.
func (c *socket) start(ctx context.Context, id string, payload any) error {
	frame, err := json.Marshal(map[string]any{"id": id, "type": c.startType, "payload": payload})
	if err != nil {
		return err
	}
	return c.Write(ctx, websocket.MessageText, frame)
}

// begin starts a subscription, or restarts it after its end. Each start uses a new operation id.
func (c *socket) begin(ctx context.Context, s *subscriber) error {
	c.peer.ids++
	s.id = strconv.Itoa(c.peer.ids)
	from := s.place()
	s.began(from, c.service)
	return c.start(ctx, s.id, map[string]any{"query": document, "variables": s.variables(from.after)})
}

// handle handles a message. It reports whether to continue reading.
func (c *socket) handle(ctx context.Context, frame []byte) bool {
	var m struct {
		ID, Type string
		Payload  json.RawMessage
	}
	if err := json.Unmarshal(frame, &m); err != nil {
		return false // a cut connection may deliver half a frame
	}
	s := c.peer.sub(m.ID)
	switch {
	case m.Type == "connection_ack" || m.Type == "ka" || m.ID == "ticks":
	case m.Type == "ping":
		return c.Write(ctx, websocket.MessageText, []byte(`{"type":"pong"}`)) == nil
	case m.Type == "connection_error":
		var t graphqlError
		if err := json.Unmarshal(m.Payload, &t); err != nil {
			c.peer.wrong("cannot decode the payload of %s", frame)
		}
		c.peer.closing(t)
	case s != nil && (m.Type == "data" || m.Type == "next"):
		var a response
		if err := json.Unmarshal(m.Payload, &a); err != nil || len(a.Errors) > 0 {
			c.peer.wrong("message has no block: %s", frame)
			return false
		}
		s.received(ctx, a.Data.Blocks, "")
	case s != nil && m.Type == "error":
		return c.restart(ctx, s, m.Payload)
	default:
		c.peer.wrong("message is unexpected: %s", frame)
		return false
	}
	return true
}

// restart restarts a subscription that ended while its connection stays open. It reports whether to
// continue reading. In graphql-ws, clients treat such an end as final, so it is a violation.
func (c *socket) restart(ctx context.Context, s *subscriber, payload []byte) bool {
	all := make([]graphqlError, 1)
	var err error
	if c.startType == "start" {
		err = json.Unmarshal(payload, &all[0])
	} else {
		err = json.Unmarshal(payload, &all)
	}
	if err != nil || len(all) != 1 {
		c.peer.wrong("cannot decode the error %s", payload)
		return false
	}
	e := all[0].end("error")
	s.ended(e)
	switch e.code {
	case epochChanged:
		if c.peer.once {
			return false
		}
	case "STREAM_GAP", "SERVICE_UNAVAILABLE":
	default:
		return false
	}
	if c.startType == "start" && e.code != epochChanged {
		c.peer.wrong("client would not reconnect after the error %s", payload)
		return false
	}
	pause(ctx, 5*time.Millisecond)
	_ = c.begin(ctx, s) // if it fails, there may still be messages to read
	return true
}

// overEventStream subscribes over an event stream. Most subscribers behave like an EventSource: their URL
// does not change, and they send their position in the header Last-Event-ID. The others put their
// position into the URL.
func overEventStream(ctx context.Context, p *peer) string {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := p.subs[0]
	from := s.place()
	variables, err := json.Marshal(s.variables(from.after))
	if err != nil {
		return err.Error()
	}
	target := p.url + "?" + url.Values{"query": {document}, "variables": {string(variables)}}.Encode()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return err.Error()
	}
	r.Header.Set("Accept", "text/event-stream")
	if from.last != "" {
		r.Header.Set("Last-Event-ID", from.last)
	}
	waiting := time.AfterFunc(openTimeout, cancel)
	res, err := p.client.Do(r)
	waiting.Stop()
	if err != nil {
		return "dial: " + err.Error()
	}
	defer func() { _ = res.Body.Close() }()
	switch res.StatusCode {
	case http.StatusOK:
	case http.StatusServiceUnavailable:
		return "503"
	default:
		p.wrong("response has the unexpected status %d", res.StatusCode)
		return unexpected
	}
	s.began(from, serviceOf(res))
	lines := bufio.NewReaderSize(res.Body, 1024)
	var event, id, data string
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return "read: " + err.Error()
		}
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case name == "event":
			event = value
		case name == "id":
			id = value
		case name == "data":
			data = value
		case line != "\n" || event == "": // a comment or an empty event
		case event == "next" && s.handleEvent(ctx, data, id):
			event, id, data = "", "", ""
		case event == "next":
			return "error event"
		default:
			p.wrong("event has the unexpected name %s", event)
			return unexpected
		}
	}
}

// handleEvent handles the data of an event. It reports whether the event contained a block.
func (s *subscriber) handleEvent(ctx context.Context, data, id string) bool {
	var a response
	if err := json.Unmarshal([]byte(data), &a); err != nil {
		s.peer.wrong("cannot decode the event %s", data)
		return false
	}
	if len(a.Errors) == 0 {
		s.received(ctx, a.Data.Blocks, id)
		return true
	}
	e := a.Errors[0].end("error")
	if e.cursor != id {
		s.peer.wrong("error has the cursor %q, but its event has the id %q", e.cursor, id)
	}
	s.ended(e)
	return false
}
