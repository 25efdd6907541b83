package gqlws

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// The newer protocol is spoken where a peer offers both, and the answer names it
// in the peer's own spelling, which is what browsers compare it with.
func TestSubprotocolIsNegotiated(t *testing.T) {
	const modern, old = "graphql-transport-ws", "graphql-ws"
	for name, tc := range map[string]struct {
		offers []string // a header each
		answer string   // "" for a refusal
		spoken string   // where it is not the answer
	}{
		"both":                      {offers: []string{"graphql-transport-ws, graphql-ws"}, answer: modern},
		"both, the older one first": {offers: []string{"graphql-ws, graphql-transport-ws"}, answer: modern},
		"the newer one":             {offers: []string{"graphql-transport-ws"}, answer: modern},
		"the older one":             {offers: []string{"graphql-ws"}, answer: old},
		"among others":              {offers: []string{"mqtt, graphql-ws, soap"}, answer: old},
		"one twice":                 {offers: []string{"graphql-ws, graphql-ws"}, answer: old},

		"a header each":                    {offers: []string{"graphql-transport-ws", "graphql-ws"}, answer: modern},
		"a header each, the older first":   {offers: []string{"graphql-ws", "graphql-transport-ws"}, answer: modern},
		"a header of others before it":     {offers: []string{"mqtt, soap", "graphql-ws"}, answer: old},
		"headers with nothing around it":   {offers: []string{"", "graphql-ws", ","}, answer: old},
		"several headers with several":     {offers: []string{"mqtt, graphql-ws", "soap, graphql-transport-ws"}, answer: modern},
		"no spaces":                        {offers: []string{"graphql-ws,graphql-transport-ws"}, answer: modern},
		"many spaces":                      {offers: []string{"   graphql-ws   ,   mqtt   "}, answer: old},
		"tabs":                             {offers: []string{"\tmqtt\t,\tgraphql-transport-ws\t"}, answer: modern},
		"empty ones":                       {offers: []string{" , ,graphql-ws, ,"}, answer: old},
		"capitals":                         {offers: []string{"GraphQL-WS"}, answer: "GraphQL-WS", spoken: old},
		"capitals, of the newer one":       {offers: []string{"graphql-ws, GRAPHQL-TRANSPORT-WS"}, answer: "GRAPHQL-TRANSPORT-WS", spoken: modern},
		"none":                             {},
		"an empty one":                     {offers: []string{""}},
		"commas alone":                     {offers: []string{",,"}},
		"others":                           {offers: []string{"mqtt, soap", "graphql-subscriptions"}},
		"one that begins alike":            {offers: []string{"graphql-ws2, graphql-transport-ws-v2"}},
		"one that ends alike":              {offers: []string{"x-graphql-ws"}},
		"separated by a space":             {offers: []string{"graphql-transport-ws graphql-ws"}},
		"separated by a semicolon":         {offers: []string{"graphql-transport-ws;graphql-ws"}},
		"in quotes":                        {offers: []string{`"graphql-ws"`}},
		"with a parameter, which has none": {offers: []string{"graphql-ws;q=1"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := NewServer(testOptions)
			url, returned := serveLoopback(t, s, newScript(t))
			nc, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			if err := nc.SetDeadline(time.Now().Add(patience)); err != nil {
				t.Fatal(err)
			}
			var request strings.Builder
			request.WriteString("GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
				"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n")
			for _, offer := range tc.offers {
				fmt.Fprintf(&request, "sec-websocket-protocol:%s\r\n", offer)
			}
			if _, err := nc.Write([]byte(request.String() + "\r\n")); err != nil {
				t.Fatal(err)
			}
			br := bufio.NewReader(nc)
			res, err := http.ReadResponse(br, nil)
			if err != nil {
				t.Fatal(err)
			}

			if tc.answer == "" {
				if err := <-returned; !errors.Is(err, ErrNoProtocol) {
					t.Errorf("error %v, want ErrNoProtocol", err)
				}
				if res.StatusCode == http.StatusSwitchingProtocols || len(res.Header.Values("Sec-WebSocket-Protocol")) > 0 {
					t.Errorf("status %d, header %v", res.StatusCode, res.Header)
				}
				return
			}
			if got := res.Header.Values("Sec-WebSocket-Protocol"); res.StatusCode != http.StatusSwitchingProtocols || len(got) != 1 || got[0] != tc.answer {
				t.Fatalf("status %d, protocol %q, want %q", res.StatusCode, got, tc.answer)
			}
			if tc.spoken == "" {
				tc.spoken = tc.answer
			}
			want := map[string]string{
				modern: `{"type":"pong"}`,
				old:    `{"type":"error","payload":{"message":"Invalid message type!"}}`,
			}[tc.spoken]
			if _, err := nc.Write(frameOf(true, opText, []byte(`{"type":"ping"}`))); err != nil {
				t.Fatal(err)
			}
			if _, got, err := readServerFrame(br); err != nil || string(got) != want {
				t.Errorf("a ping is answered %s, %v, want %s", got, err, want)
			}
			nc.Close()
			shutdown(t, s)
		})
	}
}
