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

// document is the subscription of all subscribers. Clients need chain_order to resume.
const document = `subscription($filter: BlockFilter, $after: String) {
  blocks(filter: $filter, after: $after) { id seq_no workchain_id shard gen_utime chain_order }
}`

const opening = 10 * time.Second // timeout for opening a connection

// A transport opens one connection, subscribes, passes blocks and ends to the subscribers of a
// peer, and returns the reason for which the connection ended.
type transport struct {
	name    string
	connect func(ctx context.Context, p *peer) (what string)
	byID    bool // its events have ids
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

// variables returns the variables of the document. Without a cursor, after is nil and the stream
// starts now.
func (s *subscriber) variables(after string) map[string]any {
	v := map[string]any{"filter": json.RawMessage(s.filter.json)}
	if after != "" {
		v["after"] = after
	}
	return v
}

// A socket is a WebSocket connection of a peer.
type socket struct {
	*websocket.Conn
	peer    *peer
	start   string // type of the message that starts an operation
	service int
}

// unexpected is the reason if the peer closes the connection because of a violation.
const unexpected = "protocol violation"

func overSocket(ctx context.Context, p *peer, protocol, start string) string {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	dialling, stop := context.WithTimeout(ctx, opening)
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
	if err == nil && start == "subscribe" { // the modern protocol requires the ack first
		_, _, err = c.Read(ctx)
	}
	for _, s := range p.subs {
		if err == nil {
			err = c.begin(ctx, s)
		}
	}
	if err == nil && p.ticks {
		err = c.say(ctx, "ticks", map[string]any{"query": `subscription{tick}`})
	}
	for err == nil {
		var frame []byte
		if _, frame, err = c.Read(ctx); err == nil && !c.hear(ctx, frame) {
			return unexpected
		}
	}
	if status := websocket.CloseStatus(err); status != -1 && status != websocket.StatusGoingAway {
		p.wrong("the socket was closed: %v", err)
	}
	return err.Error()
}

// serviceOf returns the number of the service that sent the response.
func serviceOf(res *http.Response) int {
	n, _ := strconv.Atoi(res.Header.Get(serviceHeader))
	return n
}

func (c *socket) say(ctx context.Context, id string, payload any) error {
	frame, err := json.Marshal(map[string]any{"id": id, "type": c.start, "payload": payload})
	if err != nil {
		return err
	}
	return c.Write(ctx, websocket.MessageText, frame)
}

// begin starts a subscription, also after its end. Operation ids are not reused.
func (c *socket) begin(ctx context.Context, s *subscriber) error {
	c.peer.ids++
	s.id = strconv.Itoa(c.peer.ids)
	from := s.place()
	s.began(from, c.service)
	return c.say(ctx, s.id, map[string]any{"query": document, "variables": s.variables(from.after)})
}

// hear handles a message and reports whether to continue reading.
func (c *socket) hear(ctx context.Context, frame []byte) bool {
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
		var t trouble
		if err := json.Unmarshal(m.Payload, &t); err != nil {
			c.peer.wrong("unreadable: %s", frame)
		}
		c.peer.closing(t)
	case s != nil && (m.Type == "data" || m.Type == "next"):
		var a answer
		if err := json.Unmarshal(m.Payload, &a); err != nil || len(a.Errors) > 0 {
			c.peer.wrong("instead of a block: %s", frame)
			return false
		}
		s.received(ctx, string(a.Data.Blocks.ChainOrder), "")
	case s != nil && m.Type == "error":
		return c.lost(ctx, s, m.Payload)
	default:
		c.peer.wrong("unexpected: %s", frame)
		return false
	}
	return true
}

// lost restarts a subscription that ended without its connection. In graphql-ws such an end is
// final.
func (c *socket) lost(ctx context.Context, s *subscriber, payload []byte) bool {
	all := make([]trouble, 1)
	var err error
	if c.start == "start" {
		err = json.Unmarshal(payload, &all[0])
	} else {
		err = json.Unmarshal(payload, &all)
	}
	if err != nil || len(all) != 1 {
		c.peer.wrong("unreadable: %s", payload)
		return false
	}
	e := all[0].end("error")
	s.ended(e)
	if e.code != "STREAM_GAP" && e.code != "SERVICE_UNAVAILABLE" {
		return false
	}
	if c.start == "start" {
		c.peer.wrong("the client would not come back after %s", payload)
		return false
	}
	pause(ctx, 5*time.Millisecond)
	_ = c.begin(ctx, s) // on an error, there may still be messages to read
	return true
}

// overEventStream behaves like an EventSource: its URL does not change, and it sends its position
// in Last-Event-ID. Some subscribers put the position into the URL.
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
	waiting := time.AfterFunc(opening, cancel)
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
		p.wrong("status %d", res.StatusCode)
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
		case event == "next" && s.take(ctx, data, id):
			event, id, data = "", "", ""
		case event == "next":
			return "error event"
		default:
			p.wrong("unexpected event: %s", event)
			return unexpected
		}
	}
}

// take handles the data of an event and reports whether it contained a block.
func (s *subscriber) take(ctx context.Context, data, id string) bool {
	var a answer
	if err := json.Unmarshal([]byte(data), &a); err != nil {
		s.peer.wrong("unreadable: %s", data)
		return false
	}
	if len(a.Errors) == 0 {
		s.received(ctx, string(a.Data.Blocks.ChainOrder), id)
		return true
	}
	e := a.Errors[0].end("error")
	if e.cursor != id {
		s.peer.wrong("the event of an error has the id %q, and the error the cursor %q", id, e.cursor)
	}
	s.ended(e)
	return false
}
