package soak_test

import (
	"context"
	crypto "crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"regexp"
	"strings"
	"time"
)

// A hostile client repeatedly opens a connection and sends the same kind of request.
type hostile struct {
	name   string
	number int           // number of parallel connections
	rest   time.Duration // mean pause between two connections
	want   string        // regular expression of permitted outcomes
	how    behavior
	text   func() string
}

// A behavior sends a text on a connection and returns the outcome: the HTTP status and error code,
// if any, followed by "left" if the client closed the connection, by "hung" if nobody did, and by
// nothing if the service did.
type behavior func(ctx context.Context, c net.Conn, text string) string

const (
	readTimeout = 20 * time.Second // longer than any timeout of the service
	unreadTime  = 15 * time.Second // time that a client waits without reading
	maxRead     = 1 << 20          // maximum number of bytes that a client reads
)

// sendAndRead sends text and reads until the service closes the connection.
func sendAndRead(ctx context.Context, c net.Conn, text string) string {
	return readResponse(ctx, c, func() { _, _ = io.WriteString(c, text) })
}

// sendSlowly sends the last line of text one byte at a time.
func sendSlowly(ctx context.Context, c net.Conn, text string) string {
	return readResponse(ctx, c, func() {
		at := strings.LastIndexByte(text, '\n') + 1
		_, err := io.WriteString(c, text[:at])
		for ; err == nil && pause(ctx, 50*time.Millisecond); at++ {
			_, err = c.Write([]byte{text[min(at, len(text)-1)]})
		}
	})
}

// sendAndLeave sends text and then closes or resets the connection.
func sendAndLeave(_ context.Context, c net.Conn, text string) string {
	_, _ = io.WriteString(c, text)
	if rand.IntN(2) == 0 {
		_ = c.(*net.TCPConn).SetLinger(0)
	}
	return "left"
}

// sendAndNeverRead sends text and reads nothing.
func sendAndNeverRead(ctx context.Context, c net.Conn, text string) string {
	_ = c.(*net.TCPConn).SetReadBuffer(4 << 10)
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, _ = io.WriteString(c, text)
	}()
	pause(ctx, unreadTime)
	_ = c.Close()
	<-sent
	return "left"
}

func readResponse(ctx context.Context, c net.Conn, say func()) string {
	sent := make(chan struct{})
	go func() { // the response may arrive before the service has read all of it
		defer close(sent)
		say()
	}()
	_ = c.SetReadDeadline(time.Now().Add(readTimeout))
	text, err := io.ReadAll(io.LimitReader(c, maxRead))
	_ = c.Close()
	<-sent
	what := ""
	if status := statusLine.FindSubmatch(text); status != nil {
		what = string(status[1]) + errorCode(text)
	}
	switch {
	case ctx.Err() != nil || len(text) == maxRead:
		what += " left"
	case errors.Is(err, os.ErrDeadlineExceeded):
		what += " hung"
	}
	return strings.TrimSpace(what)
}

var (
	statusLine = regexp.MustCompile(`^HTTP/1\.1 (\d+)`)
	codeMember = regexp.MustCompile(`"code":"([A-Z_]+)"`)
)

func errorCode(text []byte) string {
	if code := codeMember.FindSubmatch(text); code != nil {
		return " " + string(code[1])
	}
	return ""
}

func codeOf(status int, text []byte) string { return fmt.Sprint(status) + errorCode(text) }

// runHostile runs one hostile client until ctx is done.
func (w *world) runHostile(ctx context.Context, h hostile) {
	// After a refused upgrade, the service may parse the next frames as a request.
	want := regexp.MustCompile(`^(` + h.want + `)( left)?$|^503 SERVICE_UNAVAILABLE( left| hung)?$`)
	for pause(ctx, h.rest/2+jitter(h.rest)) {
		c, err := net.DialTimeout("tcp", w.child.addr, 5*time.Second)
		if err != nil {
			w.fault("%s: connect: %v", h.name, err)
			continue
		}
		off := context.AfterFunc(ctx, func() { _ = c.Close() })
		what := h.how(ctx, c, h.text())
		off()
		_ = c.Close()
		w.hostilities.Add(1)
		if what != "" && what != "left" {
			w.codes.add(strings.TrimSuffix(strings.TrimSuffix(what, " left"), " hung"))
		}
		if ctx.Err() == nil && what != "left" && !want.MatchString(what) {
			w.fault("%s: unexpected outcome %q", h.name, what)
		}
	}
}

// hostiles returns the hostile clients of a run.
func hostiles() []hostile {
	const refused = `400 (GRAPHQL_PARSE_FAILED|GRAPHQL_VALIDATION_FAILED|LIMIT_EXCEEDED|BAD_USER_INPUT)`
	const gone = `|101|101 [A-Z_]+` // closed, possibly after an upgrade and an error
	brief, long := 100*time.Millisecond, time.Second
	expensive := query("{blockchain{" + times(40, "a#:blocks(last:50){edges{node{id hash shard chain_order}}}") + "}}")
	live := query(`subscription{blocks{` + times(45, "a#:chain_order ") + `}}`)
	half := post(strings.Repeat(" ", 10_000))
	half = half[:len(half)-10_000]
	return []hostile{
		{"refused documents", 4, brief, refused, sendAndRead, func() string { return post(query(oneOf(documents))) }},
		{"new documents", 2, brief / 4, `200`, sendAndRead, func() string {
			return post(query(fmt.Sprintf("{a%d:info{version time}}", rand.Uint64())))
		}},
		{"bad JSON", 2, brief, `400 BAD_REQUEST`, sendAndRead, func() string { return post(oneOf(badBodies)) }},
		{"huge bodies", 2, brief, `|413 LIMIT_EXCEEDED`, sendAndRead, func() string {
			return post(strings.Repeat(" ", 1<<20))
		}},
		{"huge chunks", 1, brief, `|413 LIMIT_EXCEEDED`, sendAndRead, func() string {
			return strings.Replace(post(""), "Content-Length: 0", "Transfer-Encoding: chunked", 1) + "ffffff\r\n" +
				strings.Repeat(" ", 1<<20)
		}},
		{"slow bodies", 8, long, `|408 TIMEOUT`, sendSlowly, func() string { return half + " " }},
		{"slow headers", 4, long, `|408|400`, sendSlowly, func() string {
			return "GET /open/graphql HTTP/1.1\nX: " + strings.Repeat("a", 1000)
		}},
		{"wrong secrets", 2, brief, `401 UNAUTHENTICATED`, sendAndRead, func() string {
			return request("POST", "/locked/graphql", query("{info{version}}"),
				"Authorization: Basic "+base64.StdEncoding.EncodeToString(random(24)))
		}},
		{"unknown projects", 1, brief, `401 UNAUTHENTICATED`, sendAndRead, func() string {
			return request("POST", fmt.Sprintf("/p%d/graphql", rand.Uint64()), query("{info{version}}"))
		}},
		{"wrong secrets on sockets", 2, brief, gone, sendAndRead, func() string {
			return upgrade("locked", oneOf(protocols)) +
				frame(`{"type":"connection_init","payload":{"Authorization":"Basic eA=="}}`)
		}},
		{"random bytes", 2, brief, `|400`, sendAndRead, func() string { return string(random(500)) + "\r\n\r\n" }},
		{"random bodies", 1, brief, `400 BAD_REQUEST`, sendAndRead, func() string { return post(string(random(500))) }},
		{"random frames", 2, brief, gone, sendAndRead, func() string {
			return upgrade("open", oneOf(protocols)) + string(random(500))
		}},
		{"half frames", 8, long, gone, sendAndRead, func() string {
			return upgrade("open", oneOf(protocols)) + frame(`{"type":"connection_init"}`) +
				frame(strings.Repeat(" ", 1000))[:3+rand.IntN(900)]
		}},
		{"sockets that say nothing", 8, long, gone, sendAndRead, func() string {
			return upgrade("open", oneOf(protocols))
		}},
		{"floods", 2, long, gone, sendAndRead, func() string {
			protocol := oneOf(protocols)
			text := oneOf([]string{`{"type":"ping"}`, `{"type":"x"}`, "{", start(protocol, "1", live),
				start(protocol, "#", query("{nothing}")), start(protocol, "#", live)})
			return upgrade("open", protocol) + frame(`{"type":"connection_init"}`) +
				strings.Join(numbered(1000, frame(text)), "")
		}},
		{"connect and leave", 2, brief, ``, sendAndLeave, func() string { return "" }},
		{"ask and leave", 2, brief, ``, sendAndLeave, func() string { return post(expensive) }},
		{"stream and leave", 1, brief, ``, sendAndLeave, func() string {
			return post(live, "Accept: text/event-stream")
		}},
		{"subscribe and leave", 2, brief, ``, sendAndLeave, func() string {
			return upgrade("open", "graphql-ws") + frame(start("graphql-ws", "1", live))
		}},
		{"unread responses", 3, long, ``, sendAndNeverRead, func() string {
			return strings.Repeat(post(expensive, "Connection: keep-alive"), 50)
		}},
		{"unread streams", 3, long, ``, sendAndNeverRead, func() string {
			return post(live, "Accept: text/event-stream")
		}},
		{"unread sockets", 3, long, ``, sendAndNeverRead, func() string {
			return upgrade("open", "graphql-ws") + strings.Join(numbered(31, frame(start("graphql-ws", "#", live))), "")
		}},
	}
}

var protocols = []string{"graphql-ws", "graphql-transport-ws"}

// documents lists documents that must be refused.
var documents = []string{
	`{...A}fragment A on Query{...A}`,
	`{info{version}}fragment A on Query{...B}fragment B on Query{...A}`,
	`{nothing}`, `{info`, `{info{version(a:1)}}`, `query($a:]){a}`, `"`,
	`{blockchain{` + times(51, `a#:blocks(last:50){edges{cursor}}`) + `}}`,
	`{info{` + strings.Repeat("version ", 9) + `}}`,
	strings.Repeat("{info", 2000),
	`{blockchain{account(address:` + strings.Repeat("[", 5000),
	`{__schema{types{fields{type{fields{type{fields{type{fields{name}}}}}}}}}}`,
	`{__type(name:"Query"){fields{type{fields{type{fields{type{fields{type{name}}}}}}}}}}`,
	`{info{version ` + strings.Repeat("@skip(if:false)", 100) + `}}`,
	`subscription{blocks{id}b:blocks{id}}`,
}

var badBodies = []string{
	``, `{`, `[]`, `[{"query":"{info{version}}"}]`, `null`, `{"query":1}`, `{"query":"{info{version}}","variables":[]}`,
	`{"query":"{info{version}}","query":"{info{version}}"}`, `{"query":"{info{version}}"}}`, `{"variables":{}}`,
	"\xff\xfe{}",
}

func oneOf(texts []string) string { return texts[rand.IntN(len(texts))] }

func random(n int) []byte {
	b := make([]byte, n)
	_, _ = crypto.Read(b) // crypto/rand never fails
	return b
}

// times concatenates n copies of text and replaces # by the number of the copy.
func times(n int, text string) string { return strings.Join(numbered(n, text), "") }

func numbered(n int, text string) (all []string) {
	for i := range n {
		all = append(all, strings.Replace(text, "#", string(rune('a'+i/26))+string(rune('a'+i%26)), 1))
	}
	return all
}

func query(document string) string { return fmt.Sprintf(`{"query":%q}`, document) }

func start(protocol, id, payload string) string {
	kind := map[string]string{"graphql-ws": "start", "graphql-transport-ws": "subscribe"}[protocol]
	return fmt.Sprintf(`{"id":%q,"type":%q,"payload":%s}`, id, kind, payload)
}

func post(body string, headers ...string) string {
	return request("POST", "/open/graphql", body, headers...)
}

// request returns an HTTP request with default headers.
func request(method, path, body string, headers ...string) string {
	all := strings.Join(append(headers, ""), "\r\n")
	for _, usual := range []string{"Host: soak.example", "Connection: close",
		"Accept: application/graphql-response+json", "Content-Type: application/json"} {
		if name, _, _ := strings.Cut(usual, ":"); !strings.Contains(all, name+":") {
			all += usual + "\r\n"
		}
	}
	return fmt.Sprintf("%s %s HTTP/1.1\r\n%sContent-Length: %d\r\n\r\n%s", method, path, all, len(body), body)
}

func upgrade(project, protocol string) string {
	return request("GET", "/"+project+"/graphql", "", "Connection: Upgrade", "Upgrade: websocket",
		"Sec-WebSocket-Version: 13",
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Protocol: "+protocol)
}

// frame returns a text frame of a client, with a zero mask.
func frame(text string) string {
	h := []byte{0x81, 0x80}
	if n := len(text); n < 126 {
		h[1] |= byte(n)
	} else {
		h[1] |= 126
		h = binary.BigEndian.AppendUint16(h, uint16(n))
	}
	return string(append(h, 0, 0, 0, 0)) + text
}
