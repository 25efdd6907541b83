package chaingql_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// TestDocumentedTranscriptsMatchTheHandler plays the transcripts in the documents. After a request and its headers, the
// client sends the lines that begin with >, and must receive those that begin with <. Lines that begin with -- are
// events on the server.
func TestDocumentedTranscriptsMatchTheHandler(t *testing.T) {
	played := 0
	for _, file := range documents(t) {
		for _, f := range fences(t, file, true) {
			if f.language != "transcript" {
				continue
			}
			played++
			t.Run(f.at, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					if got := play(t, f.text); got != f.text {
						t.Errorf("%s shows\n%s\nbut the transcript is\n%s", f.at, f.text, got)
					}
				})
			})
		}
	}
	if played < 5 {
		t.Errorf("only %d transcripts were found", played)
	}
}

// A transcript is the state of a documented transcript while it is played.
type transcript struct {
	t         *testing.T
	handler   *chaingql.Handler
	chain     *memchain.Chain
	n         *network
	request   *http.Request // not sent yet
	frames    chan string   // frames of the open stream or socket
	sendFrame func(string)  // sends a frame on the socket; nil if the request is not for a socket
	received  []string      // lines that were received, but not printed yet
}

func play(t *testing.T, script string) string {
	chain := referenceChain(t)
	projects := chaingql.StaticProjects{"demo": {}, "shop": {Secret: "s3cret", RequireSecret: true}}
	h, _ := newHandler(t, chain, chaingql.Options{Authorizer: projects})
	s := &transcript{t: t, handler: h, chain: chain, n: serve(t, mounted(h))}
	var played strings.Builder
	lines := strings.Split(strings.TrimSuffix(script, "\n"), "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, "< ") {
			continue
		}
		fmt.Fprintln(&played, line)
		s.do(line)
		if i+1 < len(lines) && isHeader(lines[i+1]) {
			continue // the request has more headers
		}
		s.listen()
		for _, received := range s.received {
			fmt.Fprintf(&played, "< %s\n", received)
		}
		s.received = nil
	}
	return played.String()
}

var header = regexp.MustCompile(`^[A-Z][A-Za-z-]+: `)

func isHeader(line string) bool { return header.MatchString(line) }

func (s *transcript) do(line string) {
	s.t.Helper()
	word, rest, _ := strings.Cut(line, " ")
	switch {
	case line == "":
	case word == "GET", word == "POST", word == "QUERY", word == "OPTIONS", word == "WS":
		method := word
		if word == "WS" {
			method = "GET"
		}
		r, err := http.NewRequest(method, "http://api.example"+strings.ReplaceAll(rest, " ", "%20"), nil)
		if err != nil {
			s.t.Fatal(err)
		}
		s.request, s.frames = r, nil
		if s.sendFrame = nil; word == "WS" {
			s.sendFrame = func(string) {}
		}
	case word == ">" && s.sendFrame != nil:
		s.sendFrame(rest)
	case word == ">":
		s.request.Body = io.NopCloser(strings.NewReader(rest))
		s.request.ContentLength = int64(len(rest))
		s.send()
	case word == "--":
		s.act(rest)
	case isHeader(line):
		name, value, _ := strings.Cut(line, ": ")
		s.request.Header.Set(name, value)
	default:
		s.t.Fatalf("the transcript has an unknown line: %s", line)
	}
}

// listen sends a request without a body and collects the frames received.
func (s *transcript) listen() {
	s.t.Helper()
	if r := s.request; r != nil && s.sendFrame != nil {
		s.request = nil
		s.dial(r)
	} else if r != nil && (r.Method == "GET" || r.Method == "OPTIONS") {
		s.send()
	}
	synctest.Wait()
	for s.frames != nil {
		select {
		case frame, open := <-s.frames:
			if !open {
				s.frames = nil
			} else {
				s.received = append(s.received, frame)
			}
			continue
		default:
		}
		return
	}
}

// shown lists the response headers that transcripts show.
var shown = []string{"Retry-After", "WWW-Authenticate", "Cache-Control", "Allow", "Accept-Query"}

func (s *transcript) send() {
	s.t.Helper()
	r := s.request
	s.request = nil
	ctx, cancel := context.WithCancel(context.Background())
	s.t.Cleanup(cancel)
	res, err := s.n.client().Do(r.WithContext(ctx))
	if err != nil {
		s.t.Fatal(err)
	}
	s.received = append(s.received, strconv.Itoa(res.StatusCode)+" "+http.StatusText(res.StatusCode))
	for _, name := range shown {
		cacheable := r.Method != "POST" && r.Header.Get("Accept") == ""
		if value := res.Header.Get(name); value != "" && (name == "Retry-After" || cacheable) {
			s.received = append(s.received, name+": "+value)
		}
	}
	lines := make(chan string, 100)
	s.frames = lines
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(lines)
		for body := bufio.NewScanner(res.Body); body.Scan(); {
			if text := body.Text(); text != "" {
				lines <- text
			}
		}
	}()
	s.t.Cleanup(func() { cancel(); _ = res.Body.Close(); <-done })
}

func (s *transcript) dial(r *http.Request) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	protocol := r.Header.Get("Sec-WebSocket-Protocol")
	r.Header.Del("Sec-WebSocket-Protocol")
	client := s.n.client()
	conn, _, err := websocket.Dial(ctx, r.URL.String(), &websocket.DialOptions{
		HTTPClient: client, HTTPHeader: r.Header, Subprotocols: []string{protocol},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	open := &socket{conn, s.t, make(chan string, 100)}
	go open.listen()
	s.t.Cleanup(func() {
		_ = conn.CloseNow()
		for range open.frames { // until the listener has returned
		}
		client.CloseIdleConnections()
	})
	s.frames, s.sendFrame = open.frames, open.send
}

// act performs an event on the server.
func (s *transcript) act(what string) {
	s.t.Helper()
	if seqNo, ok := strings.CutPrefix(what, "masterchain block "); ok {
		n, _ := strconv.ParseUint(seqNo, 10, 32)
		commit(s.t, s.chain, masterBlock(uint32(n), fmt.Sprintf("%064x", n)))
	} else if epoch, ok := strings.CutPrefix(what, "the chain is replaced; the new one has the epoch "); ok {
		page, err := s.chain.Blocks(s.t.Context(), chaingql.BlocksQuery{First: 10})
		if err != nil {
			s.t.Fatal(err)
		}
		s.chain.Replace(epoch)
		commit(s.t, s.chain, page...)
		synctest.Wait()
	} else if what == "the service shuts down" {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		s.t.Cleanup(cancel)
		go func() { _ = s.handler.Shutdown(ctx) }()
		time.Sleep(time.Second)
	} else if n, ok := strings.CutSuffix(what, " other subscriptions are started"); ok {
		n, _ := strconv.Atoi(n)
		for i := range n {
			s.sendFrame(start(fmt.Sprint(i+1), "subscription{blocks{seq_no}}"))
		}
	} else if d, err := time.ParseDuration(what); err == nil {
		time.Sleep(d)
	} else {
		s.t.Fatalf("the transcript has an unknown event: %s", what)
	}
}
