package chaingql_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// allTransports contains a function for each transport that sends a document and returns the response. All transports
// must return the same response.
var allTransports = map[string]func(t *testing.T, n *network, document string, variables any) string{
	"GET": func(t *testing.T, n *network, document string, variables any) string {
		return n.ask(t, "GET", document, variables, "application/json")
	},
	"POST": func(t *testing.T, n *network, document string, variables any) string {
		return n.ask(t, "POST", document, variables, "application/json")
	},
	"QUERY": func(t *testing.T, n *network, document string, variables any) string {
		return n.ask(t, "QUERY", document, variables, "application/json")
	},
	"events": func(t *testing.T, n *network, document string, variables any) string {
		response := n.ask(t, "POST", document, variables, "text/event-stream")
		for line := range strings.Lines(response) {
			if data, ok := strings.CutPrefix(line, "data: "); ok {
				return strings.TrimSpace(data)
			}
		}
		return response // the request was refused before an event stream began
	},
	"multipart": func(t *testing.T, n *network, document string, variables any) string {
		response := n.ask(t, "POST", document, variables, "multipart/mixed;subscriptionSpec=1.0")
		for line := range strings.Lines(response) {
			if data, ok := strings.CutPrefix(strings.TrimSpace(line), `{"payload":`); ok {
				return strings.TrimSuffix(data, "}")
			}
		}
		return response // the request was refused before a stream began
	},
	"graphql-ws": func(t *testing.T, n *network, document string, variables any) string {
		return n.askSocket(t, "graphql-ws", "start", document, variables)
	},
	"graphql-transport-ws": func(t *testing.T, n *network, document string, variables any) string {
		return n.askSocket(t, "graphql-transport-ws", "subscribe", document, variables)
	},
}

func body(document string, variables any) string {
	b, err := json.Marshal(map[string]any{"query": document, "variables": variables})
	if err != nil {
		panic(err)
	}
	return string(b)
}

func (n *network) ask(t *testing.T, method, document string, variables any, accept string) string {
	t.Helper()
	target, sent := "http://api.example/demo/graphql", body(document, variables)
	if method == "GET" {
		v, err := json.Marshal(variables)
		if err != nil {
			t.Fatal(err)
		}
		target, sent = target+"?"+url.Values{"query": {document}, "variables": {string(v)}}.Encode(), ""
	}
	r, err := http.NewRequest(method, target, strings.NewReader(sent))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", accept)
	r.Header.Set("Content-Type", "application/json")
	res, err := n.client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var all strings.Builder
	for sc := bufio.NewScanner(res.Body); sc.Scan(); {
		all.WriteString(sc.Text() + "\n")
	}
	return strings.TrimSpace(all.String())
}

// askSocket sends a document over a socket and returns the payload of the data message. If it receives an error message
// instead, it returns the error in the form of a response body.
func (n *network) askSocket(t *testing.T, protocol, start, document string, variables any) string {
	t.Helper()
	client := n.client()
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, _, err := websocket.Dial(ctx, "ws://api.example/demo/graphql", &websocket.DialOptions{
		HTTPClient: client, Subprotocols: []string{protocol},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseNow()
	for _, frame := range []string{
		`{"type":"connection_init"}`,
		`{"id":"1","type":"` + start + `","payload":` + body(document, variables) + `}`,
	} {
		if err := c.Write(ctx, websocket.MessageText, []byte(frame)); err != nil {
			t.Fatal(err)
		}
	}
	for {
		_, frame, err := c.Read(ctx)
		if err != nil {
			t.Fatal(err)
		}
		var m struct {
			Type    string
			Payload json.RawMessage
		}
		if err := json.Unmarshal(frame, &m); err != nil {
			t.Fatal(err)
		}
		switch {
		case m.Type == "data", m.Type == "next":
			return string(m.Payload)
		case m.Type == "error" && m.Payload[0] == '[':
			return `{"errors":` + string(m.Payload) + `}`
		case m.Type == "error":
			return `{"errors":[` + string(m.Payload) + `]}`
		}
	}
}
