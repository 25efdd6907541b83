package chaingql_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql"
)

// slowReader requests the response to pages over a protocol ("HTTP/1.1" or "HTTP/2") and returns its body and its size.
// The client buffers at most 64 KiB.
func slowReader(t *testing.T, n *network, protocol string) (io.ReadCloser, int) {
	t.Helper()
	transport := &http.Transport{
		DialContext: func(context.Context, string, string) (net.Conn, error) { return n.dial() },
		Protocols:   new(http.Protocols),
		HTTP2:       &http.HTTP2Config{MaxReceiveBufferPerStream: 64 << 10, MaxReceiveBufferPerConnection: 64 << 10},
	}
	transport.Protocols.SetHTTP1(protocol == "HTTP/1.1")
	transport.Protocols.SetUnencryptedHTTP2(protocol == "HTTP/2")
	t.Cleanup(transport.CloseIdleConnections)
	r, err := http.NewRequest("POST", "http://api.example/demo/graphql", strings.NewReader(pages()))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	res, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(res.Proto, protocol) {
		t.Fatalf("the protocol is %s, want %s", res.Proto, protocol)
	}
	return res.Body, int(res.ContentLength)
}

// readAt reads at a rate in bytes per second and returns the number of bytes received.
func readAt(body io.Reader, rate int) (received int, err error) {
	piece := make([]byte, rate/10)
	for ; err == nil; time.Sleep(time.Second / 10) {
		var n int
		n, err = io.ReadFull(body, piece)
		received += n
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return received, err
}

// overSlowConnections runs a test with a server of large responses, over both protocols.
func overSlowConnections(t *testing.T, test func(t *testing.T, h *chaingql.Handler, body io.ReadCloser, size int)) {
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2"} {
		t.Run(protocol, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newPagesHandler(t, 0)
				srv := &http.Server{Handler: h, Protocols: new(http.Protocols)}
				srv.Protocols.SetHTTP1(true)
				srv.Protocols.SetUnencryptedHTTP2(true)
				body, size := slowReader(t, serveBy(t, srv), protocol)
				defer func() { _ = body.Close() }()
				test(t, h, body, size)
			})
		})
	}
}

func TestSlowReaderReceivesWholeResponse(t *testing.T) {
	overSlowConnections(t, func(t *testing.T, _ *chaingql.Handler, body io.ReadCloser, size int) {
		start := time.Now()
		received, err := readAt(body, 40_000)
		if size < 350_000 || received != size || err != nil {
			t.Errorf("after %v the client had %d of %d bytes: %v", time.Since(start), received, size, err)
		}
	})
}

// A client that reads at 8 KiB per second would need twice the time that a response of this size may take.
func TestClientBelowTheMinimumReadRateIsDisconnected(t *testing.T) {
	overSlowConnections(t, func(t *testing.T, _ *chaingql.Handler, body io.ReadCloser, size int) {
		start := time.Now()
		received, _ := readAt(body, 8<<10)
		longest := 5*time.Second + time.Duration(size)*time.Second/(16<<10)
		// The client has 64 KiB in its buffer when the connection is cut.
		if took := time.Since(start); received == size || took > longest+9*time.Second || took < longest-9*time.Second {
			t.Errorf("the client had %d of %d bytes after %v, want an end after %v", received, size, took, longest)
		}
	})
}

func TestClientThatStopsReadingIsDisconnectedAfterWriteTimeout(t *testing.T) {
	overSlowConnections(t, func(t *testing.T, h *chaingql.Handler, body io.ReadCloser, size int) {
		for range 50 {
			if _, err := io.ReadFull(body, make([]byte, 4000)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second / 10)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if _, pending := h.Pending(); pending != 0 {
			t.Errorf("%d bytes of the response are kept for a client that has stopped reading for 5 s", pending)
		}
	})
}

// The process must not wait minutes for a client that reads slowly.
func TestShutdownDoesNotWaitForSlowReader(t *testing.T) {
	overSlowConnections(t, func(t *testing.T, h *chaingql.Handler, body io.ReadCloser, _ int) {
		ended := make(chan struct{})
		go func() { defer close(ended); _, _ = readAt(body, 20_000) }()
		defer func() { _ = body.Close(); <-ended }()
		time.Sleep(time.Second)
		start := time.Now()
		if err := h.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("Shutdown took %v, want at most 5s", took)
		}
	})
}
