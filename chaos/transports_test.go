package chaos_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/coder/websocket"
)

const opening = 10 * time.Second // for a connection to stand

func overLegacySocket(ctx context.Context, s *subscriber, from place) end {
	return overSocket(ctx, s, from, "graphql-ws", "start")
}

func overModernSocket(ctx context.Context, s *subscriber, from place) end {
	return overSocket(ctx, s, from, "graphql-transport-ws", "subscribe")
}

// variables of the document; after is nil where it is to begin now.
func (s *subscriber) variables(after string) map[string]any {
	v := map[string]any{"filter": json.RawMessage(s.filter.json)}
	if after != "" {
		v["after"] = after
	}
	return v
}

// overSocket begins at the last cursor, by the argument after.
func overSocket(ctx context.Context, s *subscriber, from place, protocol, start string) end {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if from.last == "" {
		from.last = from.first
	}
	request, err := json.Marshal(map[string]any{
		"id": "1", "type": start, "payload": map[string]any{"query": document, "variables": s.variables(from.last)},
	})
	if err != nil {
		return end{what: err.Error(), code: "CLIENT"}
	}
	dialling, stop := context.WithTimeout(ctx, opening)
	conn, _, err := websocket.Dial(dialling, s.url, &websocket.DialOptions{HTTPClient: s.client, Subprotocols: []string{protocol}})
	stop()
	if err != nil {
		return end{what: "dial: " + err.Error()}
	}
	defer func() { _ = conn.CloseNow() }()
	for _, frame := range []string{`{"type":"connection_init"}`, string(request)} {
		if err := conn.Write(ctx, websocket.MessageText, []byte(frame)); err != nil {
			return end{what: "write: " + err.Error()}
		}
		if frame != string(request) && protocol == "graphql-transport-ws" { // wants its ack first
			if _, _, err := conn.Read(ctx); err != nil {
				return end{what: "ack: " + err.Error()}
			}
		}
	}
	s.connects(from)
	for {
		_, frame, err := conn.Read(ctx)
		if err != nil {
			return end{what: "read: " + err.Error()}
		}
		if e, ended := s.hear(ctx, conn, frame); ended {
			return e
		}
	}
}

// hear takes what a socket said, and tells whether it was the end.
func (s *subscriber) hear(ctx context.Context, conn *websocket.Conn, frame []byte) (end, bool) {
	var m struct {
		Type    string
		Payload json.RawMessage
	}
	if err := json.Unmarshal(frame, &m); err != nil {
		return end{what: "half a frame"}, true // a line that was cut may hand that on
	}
	switch m.Type {
	case "data", "next":
		return s.take(ctx, m.Payload)
	case "ping":
		if err := conn.Write(ctx, websocket.MessageText, []byte(`{"type":"pong"}`)); err != nil {
			return end{what: "write: " + err.Error()}, true
		}
	case "connection_ack", "ka":
	case "error", "connection_error":
		var one trouble
		var several []trouble
		if json.Unmarshal(m.Payload, &several) == nil && len(several) > 0 {
			one = several[0]
		} else if err := json.Unmarshal(m.Payload, &one); err != nil {
			return end{what: string(frame), code: "UNREADABLE"}, true
		}
		if m.Type == "connection_error" && one.Extensions.Code == "" {
			one.Extensions.Code = "SERVICE_UNAVAILABLE" // an end of the connection, not of the subscription
		}
		return one.end(m.Type), true
	default:
		return end{what: string(frame), code: "UNEXPECTED"}, true
	}
	return end{}, false
}

// overEventStream does as an EventSource: its URL remains the same, and where it
// was is told in Last-Event-ID.
func overEventStream(ctx context.Context, s *subscriber, from place) end {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	variables, err := json.Marshal(s.variables(from.first))
	if err != nil {
		return end{what: err.Error(), code: "CLIENT"}
	}
	target := s.url + "?" + url.Values{"query": {document}, "variables": {string(variables)}}.Encode()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return end{what: err.Error(), code: "CLIENT"}
	}
	r.Header.Set("Accept", "text/event-stream")
	if from.last != "" {
		r.Header.Set("Last-Event-ID", from.last)
	}
	waiting := time.AfterFunc(opening, cancel)
	res, err := s.client.Do(r)
	waiting.Stop()
	if err != nil {
		return end{what: "request: " + err.Error()}
	}
	defer func() { _ = res.Body.Close() }()
	switch res.StatusCode {
	case http.StatusOK:
	case http.StatusServiceUnavailable:
		return end{what: "503"}
	default:
		return end{what: fmt.Sprint("status ", res.StatusCode), code: "REFUSED"}
	}
	s.connects(from)
	lines := bufio.NewReaderSize(res.Body, 1024)
	var event, id, data string
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return end{what: "read: " + err.Error()}
		}
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		value = strings.TrimPrefix(value, " ")
		switch name {
		case "event":
			event = value
		case "id":
			id = value
		case "data":
			data = value
		case "": // a comment, or the end of an event
			if line != "\n" || event == "" {
				continue
			}
			if event == "complete" {
				return end{what: "complete", code: "UNEXPECTED"}
			}
			if e, ended := s.take(ctx, []byte(data)); ended {
				if e.cursor == "" || id != "" {
					e.cursor = id // the place to go on from
				}
				return e
			}
			event, id, data = "", "", ""
		}
	}
}
