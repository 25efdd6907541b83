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

// If a peer offers both protocols, the server uses the newer one. The response repeats the peer's spelling of the
// protocol, because browsers compare the response with the offer.
func TestSubprotocolIsNegotiated(t *testing.T) {
	const modern, old = "graphql-transport-ws", "graphql-ws"
	for name, tc := range map[string]struct {
		offers   []string // each is the value of one header
		response string   // header of the response; "" if the handshake is refused
		used     string   // protocol used, if it is not response
	}{
		"both":                      {offers: []string{"graphql-transport-ws, graphql-ws"}, response: modern},
		"both, the older one first": {offers: []string{"graphql-ws, graphql-transport-ws"}, response: modern},
		"the newer one":             {offers: []string{"graphql-transport-ws"}, response: modern},
		"the older one":             {offers: []string{"graphql-ws"}, response: old},
		"among others":              {offers: []string{"mqtt, graphql-ws, soap"}, response: old},
		"one twice":                 {offers: []string{"graphql-ws, graphql-ws"}, response: old},

		"two headers":                      {offers: []string{"graphql-transport-ws", "graphql-ws"}, response: modern},
		"two headers, the older one first": {offers: []string{"graphql-ws", "graphql-transport-ws"}, response: modern},
		"after a header with others":       {offers: []string{"mqtt, soap", "graphql-ws"}, response: old},
		"between empty headers":            {offers: []string{"", "graphql-ws", ","}, response: old},
		"several headers with two each": {offers: []string{"mqtt, graphql-ws", "soap, graphql-transport-ws"},
			response: modern},
		"no spaces":      {offers: []string{"graphql-ws,graphql-transport-ws"}, response: modern},
		"many spaces":    {offers: []string{"   graphql-ws   ,   mqtt   "}, response: old},
		"tabs":           {offers: []string{"\tmqtt\t,\tgraphql-transport-ws\t"}, response: modern},
		"empty elements": {offers: []string{" , ,graphql-ws, ,"}, response: old},
		"capitals":       {offers: []string{"GraphQL-WS"}, response: "GraphQL-WS", used: old},
		"capitals in the newer one": {offers: []string{"graphql-ws, GRAPHQL-TRANSPORT-WS"},
			response: "GRAPHQL-TRANSPORT-WS", used: modern},
		"none":                     {},
		"an empty header":          {offers: []string{""}},
		"only commas":              {offers: []string{",,"}},
		"others":                   {offers: []string{"mqtt, soap", "graphql-subscriptions"}},
		"a common prefix":          {offers: []string{"graphql-ws2, graphql-transport-ws-v2"}},
		"a common suffix":          {offers: []string{"x-graphql-ws"}},
		"separated by a space":     {offers: []string{"graphql-transport-ws graphql-ws"}},
		"separated by a semicolon": {offers: []string{"graphql-transport-ws;graphql-ws"}},
		"in quotes":                {offers: []string{`"graphql-ws"`}},
		"with a parameter":         {offers: []string{"graphql-ws;q=1"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := NewServer(testOptions)
			url, returned := serveLoopback(t, s, newFakeSession(t))
			nc, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			if err := nc.SetDeadline(time.Now().Add(testTimeout)); err != nil {
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

			if tc.response == "" {
				if err := <-returned; !errors.Is(err, ErrNoProtocol) {
					t.Errorf("Accept returned %v, want ErrNoProtocol", err)
				}
				if res.StatusCode == http.StatusSwitchingProtocols ||
					len(res.Header.Values("Sec-WebSocket-Protocol")) > 0 {
					t.Errorf("status %d, header %v, want no upgrade", res.StatusCode, res.Header)
				}
				return
			}
			if got := res.Header.Values("Sec-WebSocket-Protocol"); res.StatusCode != http.StatusSwitchingProtocols ||
				len(got) != 1 || got[0] != tc.response {
				t.Fatalf("status %d, protocol %q, want %q", res.StatusCode, got, tc.response)
			}
			if tc.used == "" {
				tc.used = tc.response
			}
			want := map[string]string{
				modern: `{"type":"pong"}`,
				old:    `{"type":"error","payload":{"message":"Invalid message type!"}}`,
			}[tc.used]
			if _, err := nc.Write(frameOf(true, opText, []byte(`{"type":"ping"}`))); err != nil {
				t.Fatal(err)
			}
			if _, got, err := readServerFrame(br); err != nil || string(got) != want {
				t.Errorf("the response to a ping is %s, %v, want %s", got, err, want)
			}
			nc.Close()
			shutdown(t, s)
		})
	}
}
