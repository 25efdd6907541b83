package chaingql_test

import (
	"bytes"
	"context"
	"io"
	"iter"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/graphql-go/graphql"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// largeEvent is the size in bytes of the value of an event.
const largeEvent = 512 << 10

// newLargeEventsHandler returns a Handler with a field large that yields two events, and a network that serves it over
// HTTP/1.1 and HTTP/2.
func newLargeEventsHandler(t *testing.T, opts chaingql.Options) (*chaingql.Handler, *network) {
	field := chaingql.SubscriptionField{
		Field: &graphql.Field{Type: graphql.String, Resolve: func(p graphql.ResolveParams) (any, error) {
			return p.Source, nil
		}},
		Subscribe: func(context.Context, graphql.ResolveParams) iter.Seq2[any, error] {
			return func(yield func(any, error) bool) {
				for range 2 {
					if !yield(strings.Repeat("x", largeEvent), nil) {
						return
					}
				}
			}
		},
	}
	opts.Schema.Subscriptions = map[string]chaingql.SubscriptionField{"large": field}
	h, _ := newHandler(t, memchain.New(), opts)
	srv := &http.Server{Handler: mounted(h), Protocols: new(http.Protocols),
		HTTP2: &http.HTTP2Config{WriteByteTimeout: 10 * time.Second}} // as in the documentation
	srv.Protocols.SetHTTP1(true)
	srv.Protocols.SetUnencryptedHTTP2(true)
	return h, serveBy(t, srv)
}

// A slowConn is a connection of a client that receives at a rate in bytes per second. It receives nothing while stopped
// is open.
type slowConn struct {
	net.Conn
	rate    int
	stopped <-chan struct{}
	after   int // the number of bytes after which the client waits for stopped
}

func (c *slowConn) Read(p []byte) (int, error) {
	if c.stopped != nil && c.after <= 0 {
		<-c.stopped
	}
	n, err := c.Conn.Read(p[:min(len(p), c.rate/10)])
	c.after -= n
	time.Sleep(time.Duration(n) * time.Second / time.Duration(c.rate))
	return n, err
}

// subscribeSlowly subscribes to the field large and receives until the subscription or the connection ends. It returns
// the number of bytes of values that were received, and whether the subscription completed.
func subscribeSlowly(t *testing.T, n *network, transport string, c *slowConn) (received int, complete bool) {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(transport != "HTTP/2")
	protocols.SetUnencryptedHTTP2(transport == "HTTP/2")
	client := &http.Client{Transport: &http.Transport{
		DialContext: func(context.Context, string, string) (conn net.Conn, err error) {
			c.Conn, err = n.dial()
			return c, err
		},
		Protocols: protocols,
	}}
	defer func() {
		client.CloseIdleConnections()
		_ = c.Close()
		time.Sleep(time.Second) // until Read has returned
	}()
	if strings.HasPrefix(transport, "graphql") {
		return receiveSlowly(t, client, transport)
	}
	r, err := http.NewRequest("GET", "http://api.example/demo/graphql?query=subscription{large}", nil)
	if err != nil {
		t.Error(err)
		return 0, false
	}
	r.Header.Set("Accept", "text/event-stream")
	if transport == "multipart" {
		r.Header.Set("Accept", "multipart/mixed;subscriptionSpec=1.0")
	}
	res, err := client.Do(r)
	if err != nil {
		t.Error(err)
		return 0, false
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	return bytes.Count(text, []byte("xxxxxxxx")) * 8, err == nil
}

// receiveSlowly is subscribeSlowly over a socket.
func receiveSlowly(t *testing.T, client *http.Client, protocol string) (received int, complete bool) {
	conn, _, err := websocket.Dial(context.Background(), "ws://api.example/demo/graphql",
		&websocket.DialOptions{HTTPClient: client, Subprotocols: []string{protocol}})
	if err != nil {
		t.Error(err)
		return 0, false
	}
	defer func() { _ = conn.CloseNow() }()
	conn.SetReadLimit(-1)
	start := map[string]string{"graphql-ws": "start", "graphql-transport-ws": "subscribe"}[protocol]
	for _, frame := range []string{
		`{"type":"connection_init"}`, `{"id":"1","type":"` + start + `","payload":{"query":"subscription{large}"}}`,
	} {
		if err := conn.Write(context.Background(), websocket.MessageText, []byte(frame)); err != nil {
			t.Error(err)
		}
	}
	for {
		_, r, err := conn.Reader(context.Background())
		if err != nil {
			return received, false
		}
		frame, err := io.ReadAll(r)
		received += bytes.Count(frame, []byte("xxxxxxxx")) * 8
		if err != nil || bytes.Contains(frame, []byte(`"complete"`)) {
			return received, err == nil
		}
	}
}

// A subscribeFunc calls subscribeSlowly with one of the transports.
type subscribeFunc func(c *slowConn) (received int, complete bool)

// overSlowSubscriptions runs a test over each transport.
func overSlowSubscriptions(
	t *testing.T, opts chaingql.Options, test func(t *testing.T, h *chaingql.Handler, subscribe subscribeFunc),
) {
	for _, transport := range []string{"HTTP/1.1", "HTTP/2", "multipart", "graphql-ws", "graphql-transport-ws"} {
		t.Run(transport, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, n := newLargeEventsHandler(t, opts)
				test(t, h, func(c *slowConn) (int, bool) { return subscribeSlowly(t, n, transport, c) })
			})
		})
	}
}

func TestSlowSubscriberReceivesLargeEvents(t *testing.T) {
	overSlowSubscriptions(t, chaingql.Options{}, func(t *testing.T, _ *chaingql.Handler, subscribe subscribeFunc) {
		start := time.Now()
		received, complete := subscribe(&slowConn{rate: 40_000})
		if received != 2*largeEvent || !complete {
			t.Errorf("after %v the client had %d of %d bytes, complete %t",
				time.Since(start), received, 2*largeEvent, complete)
		}
	})
}

// A client that reads at 8 KiB per second would need twice the time that an event of this size may take.
func TestSubscriberBelowTheMinimumReadRateIsDisconnected(t *testing.T) {
	overSlowSubscriptions(t, chaingql.Options{}, func(t *testing.T, _ *chaingql.Handler, subscribe subscribeFunc) {
		start := time.Now()
		received, _ := subscribe(&slowConn{rate: 8 << 10})
		took, longest := time.Since(start), 10*time.Second+largeEvent*time.Second/(16<<10)
		if received >= largeEvent || (took-longest).Abs() > 9*time.Second {
			t.Errorf("the client had %d of %d bytes after %v, want an end after %v",
				received, largeEvent, took, longest)
		}
	})
}

func TestSubscriberThatStopsReadingIsDisconnected(t *testing.T) {
	overSlowSubscriptions(t, chaingql.Options{}, func(t *testing.T, h *chaingql.Handler, subscribe subscribeFunc) {
		stopped, ended := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			subscribe(&slowConn{rate: 40_000, stopped: stopped, after: 200_000}) // for 5 s
		}()
		time.Sleep(26 * time.Second) // over HTTP/2, WriteByteTimeout may pass twice
		synctest.Wait()
		if _, pending := h.Pending(); pending != 0 {
			t.Errorf("%d bytes are kept for a client that has stopped reading", pending)
		}
		close(stopped)
		<-ended
	})
}

func TestExpiredCredentialsEndALargeEvent(t *testing.T) {
	opts := chaingql.Options{Authorizer: expiresIn(5 * time.Second)}
	overSlowSubscriptions(t, opts, func(t *testing.T, _ *chaingql.Handler, subscribe subscribeFunc) {
		start := time.Now()
		received, _ := subscribe(&slowConn{rate: 17_000})
		if took := time.Since(start); received >= largeEvent || took > 18*time.Second {
			t.Errorf("the client had %d of %d bytes after %v, want an end within 13 s of the expiry",
				received, largeEvent, took)
		}
	})
}

func TestShutdownDoesNotWaitForSlowSubscriber(t *testing.T) {
	overSlowSubscriptions(t, chaingql.Options{}, func(t *testing.T, h *chaingql.Handler, subscribe subscribeFunc) {
		ended := make(chan struct{})
		go func() { defer close(ended); subscribe(&slowConn{rate: 20_000}) }()
		time.Sleep(5 * time.Second)
		start := time.Now()
		if err := h.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took > 14*time.Second {
			t.Errorf("Shutdown took %v, want at most the 10 s of a write and 3 s of a close handshake", took)
		}
		<-ended
	})
}

// The memory is for three events that are sent and one that is resolved, which takes more. The fast clients receive
// more than 256 KiB per second, and the slow ones less. The other slow clients may be cut too.
func TestSlowestSubscriberIsDisconnectedIfTheBudgetIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slow, fast = 20_000, 400_000
		limits := chaingql.Limits{PendingResponseBytes: 5 * largeEvent}
		_, n := newLargeEventsHandler(t, chaingql.Options{Limits: limits})
		var all sync.WaitGroup
		for name, c := range map[string]struct {
			after time.Duration
			rate  int
			cut   bool
		}{
			"first slow client":  {0, slow, true},
			"second slow client": {2 * time.Second, slow, false},
			"third slow client":  {4 * time.Second, slow, false},
			"fast client":        {5500 * time.Millisecond, fast, false},
			"new client":         {7 * time.Second, fast, false},
		} {
			all.Go(func() {
				time.Sleep(c.after)
				received, complete := subscribeSlowly(t, n, "HTTP/1.1", &slowConn{rate: c.rate})
				if c.cut && complete || c.rate == fast && !complete {
					t.Errorf("the %s had %d of %d bytes, complete %t", name, received, 2*largeEvent, complete)
				}
			})
		}
		all.Wait()
	})
}
