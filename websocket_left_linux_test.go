package chaingql_test

import (
	"context"
	"net"
	"net/http"
	"path/filepath"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/chaingql/chaingql"
)

// A unixService is a server at a Unix socket. A client that has closed its connection has left at once: unlike with
// TCP, no packet is on its way.
type unixService struct {
	t      *testing.T
	client *http.Client
}

func serveUnix(t *testing.T, h http.Handler) *unixService {
	t.Helper()
	at := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", at)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: h}
	go srv.Serve(l)
	t.Cleanup(func() { srv.Close() })
	return &unixService{t, &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", at)
		},
	}}}
}

// socket opens a socket and sends frames. If admitted is set, it first sends connection_init and waits for the
// response.
func (s *unixService) socket(admitted bool, frames ...string) *websocket.Conn {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	c, _, err := websocket.Dial(ctx, "ws://x/demo/graphql", &websocket.DialOptions{
		HTTPClient: s.client, Subprotocols: []string{"graphql-ws"},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.CloseNow() })
	if admitted {
		frames = slices.Insert(frames, 0, `{"type":"connection_init"}`)
	}
	for i, f := range frames {
		if err = c.Write(ctx, websocket.MessageText, []byte(f)); err == nil && admitted && i == 0 {
			_, _, err = c.Read(ctx)
		}
		if err != nil {
			s.t.Fatal(err)
		}
	}
	return c
}

func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s did not happen", what)
		}
	}
}

// While a message is processed, its socket is not read, so that the context of the socket does not show that the client
// has left. Otherwise clients could send many new documents, or credentials, over one connection at a time.
func TestMessagesOfClientsThatHaveLeftAreNotProcessed(t *testing.T) {
	slots := runtime.GOMAXPROCS(0)
	start := `{"id":"1","type":"start","payload":` + heldDocument + `}`
	for name, tc := range map[string]struct {
		admitted bool // the clients leave after they have received connection_ack
		message  string
		options  func(process func()) chaingql.Options
	}{
		"documents": {true, start, func(process func()) chaingql.Options {
			return chaingql.Options{Limits: chaingql.Limits{Aliases: 1}, Hooks: chaingql.Hooks{
				LimitHit: func(context.Context, string) { process() },
			}}
		}},
		"credentials": {false, `{"type":"connection_init"}`, func(process func()) chaingql.Options {
			return chaingql.Options{Limits: chaingql.Limits{Requests: slots}, Authorizer: authorizer(
				func(ctx context.Context, _ chaingql.Credentials) (context.Context, error) {
					process()
					return ctx, nil
				})}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			const left = 20
			var processed, closed atomic.Int32
			release := make(chan struct{})
			opts := tc.options(func() {
				processed.Add(1)
				<-release
			})
			opts.Hooks.SocketClosed = func(_ context.Context, _ chaingql.Socket, why chaingql.Reason, err error) {
				if closed.Add(1) <= left { // the others end with the test
					equal(t, "reason of the end of a socket", why, chaingql.ReasonClient)
				}
			}
			h, _ := newHandler(t, referenceChain(t), opts)
			s := serveUnix(t, mounted(h))
			for range slots {
				s.socket(tc.admitted, tc.message)
			}
			waitFor(t, "processing of the first messages", func() bool { return int(processed.Load()) == slots })
			for range left {
				s.socket(tc.admitted, tc.message, tc.message, tc.message).CloseNow()
			}
			close(release)
			waitFor(t, "the end of the sockets", func() bool { return closed.Load() == left })
			equal(t, "processed messages", int(processed.Load()), slots)
		})
	}
}
