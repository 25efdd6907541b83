package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/coder/websocket"
)

const document = `subscription($after: String) { blocks(after: $after) { chain_order } }`

// A subscriber follows all blocks over a WebSocket or an event stream. If it is
// disconnected, it reconnects to any host and continues from its last cursor.
type subscriber struct {
	address string // host and port of the proxy
	begin   chaingql.Cursor
	socket  bool // whether to use WebSockets instead of event streams
	forget  bool // whether to reconnect without a cursor, so that blocks are lost
	client  *http.Client
	heard   func() // if not nil, called for each block

	mu          sync.Mutex
	got         []chaingql.Cursor
	connections int
	wrong       string // the last error that must not occur
}

func (s *subscriber) at() (c chaingql.Cursor, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.got) > 0 {
		return s.got[len(s.got)-1], len(s.got)
	}
	return s.begin, 0
}

func (s *subscriber) run(ctx context.Context) {
	for ctx.Err() == nil {
		after, n := s.at()
		variables := map[string]any{"after": after}
		if s.forget && n > 0 {
			variables = nil
		}
		if s.socket {
			s.overSocket(ctx, variables)
		} else {
			s.overEventStream(ctx, variables)
		}
		select {
		case <-time.After(time.Duration(50+rand.IntN(200)) * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// take records a response and reports whether more responses may follow.
func (s *subscriber) take(payload []byte) bool {
	var a struct {
		Data *struct {
			Blocks struct {
				ChainOrder chaingql.Cursor `json:"chain_order"`
			}
		}
		Errors []trouble
	}
	if err := json.Unmarshal(payload, &a); err != nil {
		return false // the connection ended within a line
	}
	if len(a.Errors) > 0 || a.Data == nil {
		s.recordErrors(a.Errors)
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got = append(s.got, a.Data.Blocks.ChainOrder)
	if s.heard != nil {
		s.heard()
	}
	return true
}

type trouble struct {
	Message    string
	Extensions struct{ Code string }
}

// recordErrors records errors that a healthy chain never returns, such as a gap or a cursor
// that is too old. It ignores SERVICE_UNAVAILABLE, which is normal while hosts or
// brokers are down.
func (s *subscriber) recordErrors(errors []trouble) {
	for _, e := range errors {
		if e.Extensions.Code != "SERVICE_UNAVAILABLE" {
			s.mu.Lock()
			s.wrong = e.Extensions.Code + ": " + e.Message
			s.mu.Unlock()
		}
	}
}

func (s *subscriber) connected() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.connections++
}

func (s *subscriber) overSocket(ctx context.Context, variables map[string]any) {
	dialling, stop := context.WithTimeout(ctx, 10*time.Second)
	defer stop()
	conn, _, err := websocket.Dial(dialling, "ws://"+s.address+"/demo/graphql",
		&websocket.DialOptions{HTTPClient: s.client, Subprotocols: []string{"graphql-transport-ws"}})
	if err != nil {
		return
	}
	defer func() { _ = conn.CloseNow() }()
	subscribe, err := json.Marshal(map[string]any{"id": "1", "type": "subscribe",
		"payload": map[string]any{"query": document, "variables": variables}})
	if err != nil {
		panic(err)
	}
	if conn.Write(dialling, websocket.MessageText, []byte(`{"type":"connection_init"}`)) != nil {
		return
	}
	if _, _, err := conn.Read(dialling); err != nil { // connection_ack
		return
	}
	if conn.Write(dialling, websocket.MessageText, subscribe) != nil {
		return
	}
	s.connected()
	for {
		_, frame, err := conn.Read(ctx)
		if err != nil {
			return
		}
		var m struct {
			Type    string
			Payload json.RawMessage
		}
		if json.Unmarshal(frame, &m) != nil {
			return
		}
		switch m.Type {
		case "next":
			if !s.take(m.Payload) {
				return
			}
		case "ping":
			if conn.Write(ctx, websocket.MessageText, []byte(`{"type":"pong"}`)) != nil {
				return
			}
		case "error":
			var errors []trouble
			_ = json.Unmarshal(m.Payload, &errors)
			s.recordErrors(errors)
			return
		default:
			return
		}
	}
}

func (s *subscriber) overEventStream(ctx context.Context, variables map[string]any) {
	encoded, err := json.Marshal(variables)
	if err != nil {
		panic(err)
	}
	target := "http://" + s.address + "/demo/graphql?" +
		url.Values{"query": {document}, "variables": {string(encoded)}}.Encode()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		panic(err)
	}
	r.Header.Set("Accept", "text/event-stream")
	res, err := s.client.Do(r)
	if err != nil {
		return
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		if res.StatusCode < 500 {
			s.recordErrors([]trouble{{Message: fmt.Sprint("status ", res.StatusCode)}})
		}
		return
	}
	s.connected()
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		if data, ok := strings.CutPrefix(lines.Text(), "data:"); ok && !s.take([]byte(data)) {
			return
		}
	}
}
