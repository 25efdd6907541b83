package attack

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// rateLimits returns requests by rate-limited clients. The server must refuse each request before it
// parses it, and must send a Retry-After header.
func rateLimits() []attack {
	const limited = "429 RATE_LIMITED Too many requests"
	at := "/" + limitedProject + "/graphql"
	basic := "Authorization: Basic OnMzY3JldA=="
	rateLimited := func(name string, text []byte) attack {
		return plain(name, limited, func(s *target) (outcome, error) {
			c, err := s.dial()
			if err != nil {
				return outcome{}, err
			}
			defer c.Close()
			if _, err := c.Write(text); err != nil {
				return outcome{}, err
			}
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				return ended(err)
			}
			content, err := io.ReadAll(resp.Body)
			if err != nil {
				return ended(err)
			}
			if after := resp.Header.Get("Retry-After"); after != "2" {
				return outcome{}, fmt.Errorf("Retry-After is %q, want \"2\"", after)
			}
			return judge(resp, content)
		})
	}
	all := []attack{
		rateLimited("a query by POST", request("POST", at, goodBody)),
		rateLimited("a query by GET", request("GET", at+"?query={info{version}}", "")),
		rateLimited("a query with a secret", request("POST", at, goodBody, basic)),
		rateLimited("a body that is not JSON", request("POST", at, "{")),
		rateLimited("a cycle", request("POST", at, query("{...A}fragment A on Query{...A}"))),
		rateLimited("a body of 100 KB", request("POST", at, goodBody+strings.Repeat(" ", 100_000))),
		rateLimited("an event stream", request("GET", at+"?query=subscription{blocks{id}}", "",
			"Accept: text/event-stream")),
		rateLimited("a handshake with a secret", upgrade(at, modern, basic)),
		rateLimited("a handshake of the legacy protocol with a secret", upgrade(at, legacy, basic)),
	}
	// The modern protocol has no message for this error, so the close frame reports it.
	for _, protocol := range []string{legacy, modern} {
		want := map[string]string{legacy: "closed 1013 connection_error RATE_LIMITED", modern: "closed 1013"}[protocol]
		openAndAsk := func(name, text string) {
			all = append(all, plain(name+" ("+protocol+")", want, func(s *target) (outcome, error) {
				return s.openAndAsk(limitedProject, protocol, text)
			}))
		}
		openAndAsk("connection_init", `{"type":"connection_init"}`)
		openAndAsk("connection_init with a secret",
			`{"type":"connection_init","payload":{"Authorization":"Basic OnMzY3JldA=="}}`)
		openAndAsk("connection_init with a wrong secret", `{"type":"connection_init","payload":{"accessKey":"wrong"}}`)
	}
	flood := plain("1,000 clients that ignore Retry-After", limited, func(s *target) (outcome, error) {
		return s.inParallel(1000, func(s *target) (outcome, error) { return s.send(request("POST", at, goodBody)) })
	})
	flood.within = 5 * usual
	return append(all, flood)
}
