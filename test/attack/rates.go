package attack

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// rates are what clients send whom the host refuses for a while: all are told
// so, and when to come back, before anything of it is looked at.
func rates() []attack {
	const limited = "429 RATE_LIMITED Too many requests"
	at := "/" + limitedProject + "/graphql"
	basic := "Authorization: Basic OnMzY3JldA=="
	told := func(name string, text []byte) attack {
		return plain(name, limited, func(s *site) (outcome, error) {
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
				return outcome{}, fmt.Errorf("Retry-After is %q", after)
			}
			return judge(resp, content)
		})
	}
	all := []attack{
		told("a query by POST", request("POST", at, goodBody)),
		told("a query by GET", request("GET", at+"?query={info{version}}", "")),
		told("a query with a secret", request("POST", at, goodBody, basic)),
		told("a body that is no JSON", request("POST", at, "{")),
		told("a cycle", request("POST", at, query("{...A}fragment A on Query{...A}"))),
		told("a body of 100 KB", request("POST", at, goodBody+strings.Repeat(" ", 100_000))),
		told("an event stream", request("GET", at+"?query=subscription{blocks{id}}", "", "Accept: text/event-stream")),
		told("a handshake with a secret", upgrade(at, modern, basic)),
		told("a handshake of the legacy protocol with a secret", upgrade(at, legacy, basic)),
	}
	// The newer protocol has no message for it: its close frame's reason tells.
	for _, protocol := range []string{legacy, modern} {
		want := map[string]string{legacy: "closed 1013 connection_error RATE_LIMITED", modern: "closed 1013"}[protocol]
		knock := func(name, text string) {
			all = append(all, plain(name+" ("+protocol+")", want, func(s *site) (outcome, error) { return s.knock(limitedProject, protocol, text) }))
		}
		knock("connection_init", `{"type":"connection_init"}`)
		knock("connection_init with a secret", `{"type":"connection_init","payload":{"Authorization":"Basic OnMzY3JldA=="}}`)
		knock("connection_init with a wrong secret", `{"type":"connection_init","payload":{"accessKey":"wrong"}}`)
	}
	flood := plain("1,000 who do not wait", limited, func(s *site) (outcome, error) {
		return s.crowd(1000, func(s *site) (outcome, error) { return s.send(request("POST", at, goodBody)) })
	})
	flood.within = 5 * usual
	return append(all, flood)
}
