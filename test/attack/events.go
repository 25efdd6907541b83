package attack

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
)

const liveQuery = "subscription{blocks{id chain_order}}"

// follow requests an event stream and returns the outcome of its first event.
func (s *target) follow(text []byte) (outcome, error) {
	c, err := s.dial()
	if err != nil {
		return outcome{}, err
	}
	defer c.Close()
	if _, err := c.Write(text); err != nil {
		return ended(err)
	}
	r := bufio.NewReader(c)
	method, _, _ := strings.Cut(string(text[:8]), " ")
	resp, err := http.ReadResponse(r, &http.Request{Method: method})
	if err != nil {
		return ended(err)
	}
	// The body is not closed, because Body.Close would wait for the end of the stream.
	if media := resp.Header.Get("Content-Type"); !strings.HasPrefix(media, "text/event-stream") &&
		!strings.HasPrefix(media, "multipart/mixed") {
		content, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse))
		if err != nil {
			return ended(err)
		}
		return judge(resp, content)
	}
	for lines := bufio.NewReader(resp.Body); ; {
		line, err := lines.ReadString('\n')
		if err == io.EOF {
			return outcome{"answered", "no events"}, nil
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return outcome{"no answer", "on an open stream"}, nil
		}
		if err != nil {
			return ended(err)
		}
		if data := eventData(line); data != "" {
			o, err := judgeJSON([]byte(data))
			if o.class == "answered" {
				o.class = "served"
			}
			return o, err
		}
	}
}

// streamRequest returns a request for an event stream by GET or POST.
func streamRequest(method, query string, headers ...string) []byte {
	if !strings.Contains(strings.Join(headers, "\n"), "Accept: ") {
		headers = append([]string{"Accept: text/event-stream"}, headers...)
	}
	if method == "POST" {
		return request(method, path, asJSON(map[string]string{"query": query}), headers...)
	}
	return request(method, path+"?query="+url.QueryEscape(query), "", headers...)
}

// events returns requests for event streams that are malformed or have false Last-Event-ID values.
func events() []attack {
	stream := func(name, want, method, query string, headers ...string) attack {
		return plain(name, want, func(s *target) (outcome, error) {
			return s.follow(streamRequest(method, query, headers...))
		})
	}
	const mine, lost = "BAD_USER_INPUT", "served|BAD_USER_INPUT|CURSOR_TOO_OLD"
	var all []attack
	for _, id := range []string{
		"0", "1", "-1", "x", "null", "undefined", "m", "\xff", "é", "😀", "%00", "../..", "' OR 1=1 --",
		strings.Repeat("9", 64),
		strings.Repeat("f", 64), strings.Repeat("f", 65), strings.Repeat("a", 100_000), "a\tb", "0 ", "A", "NaN", "1e9",
		"0m",
	} {
		want := lost + "|no answer" // a cursor after all blocks is valid; the stream then waits for blocks
		if len(id) > 16<<10 {
			want = "431 LIMIT_EXCEEDED"
		}
		all = append(all, plain("Last-Event-ID "+short(id), want, func(s *target) (outcome, error) {
			s.timeout = usual / 3
			return s.follow(streamRequest("GET", liveQuery, "Last-Event-ID: "+id))
		}))
	}
	all = append(all,
		stream("two Last-Event-IDs", lost, "GET", liveQuery, "Last-Event-ID: 0", "Last-Event-ID: x"),
		stream("an empty Last-Event-ID", "served", "GET", liveQuery, "Last-Event-ID: "),
		stream("an invalid Last-Event-ID overrides after", mine, "GET", `subscription{blocks(after:""){id}}`,
			"Last-Event-ID: zzz"),
		stream("an invalid Last-Event-ID with a query", "served|answered|BAD_USER_INPUT", "GET", "{info{version}}",
			"Last-Event-ID: zzz"),
		stream("an invalid after", mine, "POST", `subscription{blocks(after:"zzz"){id}}`),
		stream("NUL as after", mine, "POST", `subscription{blocks(after:"\u0000"){id}}`),
		stream("an empty after", "served|CURSOR_TOO_OLD", "POST", `subscription{blocks(after:""){id}}`),
		stream("a query", "served|answered", "POST", "{info{version}}"),
		stream("a mutation", "GRAPHQL", "POST", "mutation{a}"),
		stream("a document that does not parse", "GRAPHQL_PARSE_FAILED", "POST", "{"),
		stream("a cycle", "GRAPHQL_VALIDATION_FAILED", "POST", "subscription{...A}fragment A on Subscription{...A}"),
		stream("too many aliases", "LIMIT_EXCEEDED", "POST", "subscription{blocks{"+times(51, "a#:id ")+"}}"),
		stream("two roots", "GRAPHQL_VALIDATION_FAILED", "POST", "subscription{blocks{id}b:blocks{id}}"),
		stream("an invalid filter", "GRAPHQL_VALIDATION_FAILED|BAD_USER_INPUT", "POST",
			"subscription{blocks(filter:{id:{in:null}}){id}}"),
		stream("a wrong secret", "401 UNAUTHENTICATED", "GET", liveQuery, "Authorization: Basic Ong="),
		stream("Accept JSON or events, a subscription", "served", "GET", liveQuery,
			"Accept: application/json, text/event-stream"),
		stream("Accept JSON or events, a query", "answered", "GET", "{info{version}}",
			"Accept: text/event-stream, application/json"),
		stream("Accept events with q=0", "406 NOT_ACCEPTABLE", "GET", liveQuery, "Accept: text/event-stream;q=0"),
		stream("HEAD", "answered", "HEAD", liveQuery),
		stream("PUT", "405 METHOD_NOT_ALLOWED", "PUT", liveQuery),
		stream("gzip", "served", "GET", liveQuery, "Accept-Encoding: gzip"),
		stream("a range", "served", "GET", liveQuery, "Range: bytes=0-10"),
		stream("a GET with a Content-Length", "served|400", "GET", liveQuery, "Content-Length: 0"),
		stream("keep-alive", "served", "GET", liveQuery, "Connection: keep-alive"),
	)
	for _, accept := range []string{
		"multipart/mixed;subscriptionSpec=1.0", `multipart/mixed;boundary="a,b\"";subscriptionSpec="1.0"`,
		"multipart/mixed;boundary=" + strings.Repeat("-", 3000) + ";subscriptionSpec=1.0",
		"multipart/mixed;boundary=\"--graphql--\";subscriptionSpec=1.0",
		"multipart/mixed;" + strings.Repeat("a;", 1000) + "subscriptionSpec=1.0",
		"multipart/mixed;subscriptionSpec*=utf-8''1.0",
		"multipart/mixed;subscriptionSpec*0=1;subscriptionSpec*1=.0",
		"multipart/mixed;subscriptionSpec=1.0;subscriptionSpec=2.0",
		strings.Repeat("multipart/mixed;subscriptionSpec=1.0,", 100) + "a/b",
		"multipart/mixed;subscriptionSpec=1.0," + strings.Repeat("x", 5000),
		"multipart/mixed;subscriptionSpec=" + strings.Repeat("\"", 2001),
		"multipart/mixed;subscriptionSpec=1.0;q=NaN",
	} {
		all = append(all, stream("multipart by "+short(accept), "served|406 NOT_ACCEPTABLE", "GET",
			`subscription{blocks(after:""){id}}`, "Accept: "+accept))
	}
	all = append(all,
		stream("multipart, an invalid after", mine, "POST", `subscription{blocks(after:"zzz"){id}}`,
			"Accept: multipart/mixed;subscriptionSpec=1.0"),
		stream("multipart, a query", "served", "POST", "{info{version}}",
			"Accept: multipart/mixed;subscriptionSpec=1.0"),
		stream("multipart, a wrong secret", "401 UNAUTHENTICATED", "GET", liveQuery,
			"Accept: multipart/mixed;subscriptionSpec=1.0", "Authorization: Basic Ong="),
		stream("multipart, HEAD", "answered", "HEAD", liveQuery, "Accept: multipart/mixed;subscriptionSpec=1.0"),
	)
	all = append(all, plain("HTTP/1.0", "served|answered|406", func(s *target) (outcome, error) {
		return s.follow([]byte(strings.Replace(string(streamRequest("GET", liveQuery)), "HTTP/1.1", "HTTP/1.0", 1)))
	}), plain("connect and leave at once, 200 times", "cut", func(s *target) (outcome, error) {
		for range 200 {
			c, err := s.dial()
			if err != nil {
				return outcome{}, err
			}
			_, err = c.Write(streamRequest("GET", liveQuery))
			c.Close()
			if err != nil {
				return outcome{}, err
			}
		}
		return outcome{class: "cut"}, nil
	}))
	all = append(all, attack{name: "2000 readers that received 100 old blocks", want: "served", within: 30 * usual,
		do: func(s *target) (outcome, error) {
			return s.replays(2000)
		}})
	for _, n := range []int{100, 500, 2000} {
		for _, q := range []string{liveQuery, `subscription{blocks(after:""){id}}`,
			"subscription{blocks(filter:{id:{in:[" + times(100, `"a"`) + "]}}){id}}"} {
			all = append(all, attack{name: fmt.Sprintf("%d streams of %s", n, short(q)),
				want: "served|no answer|CURSOR_TOO_OLD", within: 20 * usual, do: func(s *target) (outcome, error) {
					return s.inParallel(n, func(own *target) (outcome, error) {
						own.timeout = 2 * usual
						return own.follow(streamRequest("POST", q))
					})
				}})
		}
	}
	return all
}

// replays opens n streams that receive 100 old blocks and then wait for new ones. The server must then
// free the buffers of the idle streams.
func (s *target) replays(n int) (outcome, error) {
	const rounds = 100
	before, err := s.server.state()
	if err != nil {
		return outcome{}, err
	}
	text := streamRequest("POST", fmt.Sprintf(`subscription{blocks(after:"%s" filter:{workchain_id:{eq:-1}}){`,
		roundBefore(rounds))+times(20, "a#:chain_order ")+"chain_order}}")
	var conns []net.Conn
	var all sync.WaitGroup
	defer func() {
		for _, c := range conns {
			c.Close()
		}
		all.Wait()
	}()
	slots := make(chan struct{}, 50) // bounds concurrent replays, so that no honest client has to wait
	replayed := make(chan error, n)
	for range n {
		slots <- struct{}{}
		c, err := s.dial()
		if err != nil {
			return outcome{}, err
		}
		conns = append(conns, c)
		all.Go(func() {
			_, err := c.Write(text)
			lines := bufio.NewReader(c)
			for had := 0; err == nil && had < rounds; {
				var line []byte
				if line, err = lines.ReadSlice('\n'); bytes.Contains(line, []byte(`"chain_order"`)) {
					had++
				}
			}
			replayed <- err
			<-slots
			_, _ = io.Copy(io.Discard, lines) // until the connection is closed
		})
	}
	for range n {
		if err := <-replayed; err != nil {
			return outcome{}, err
		}
	}
	cost, err := s.cost(before, n)
	return outcome{"served", cost}, err
}
