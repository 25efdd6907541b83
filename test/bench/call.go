package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"time"
)

const (
	pattern = "/{project}/graphql"
	path    = "/demo/graphql"
)

// A caller calls a handler in the same way as net/http, but without allocations of its own.
type caller struct {
	handler  http.Handler
	request  *http.Request
	received body
	sent     recorder
}

type body struct{ bytes.Reader }

func (*body) Close() error { return nil }

// newCaller returns a caller that sends requests with a cancelable context, as on a server.
func newCaller(ctx context.Context, h http.Handler) *caller {
	c := &caller{handler: h, sent: recorder{header: http.Header{}}}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://127.0.0.1"+path, nil)
	if err != nil {
		panic(err) // the constant URL is valid
	}
	r.RequestURI, r.RemoteAddr = path, "127.0.0.1:1234"
	r.Header.Set("Content-Type", "application/json")
	mux := http.NewServeMux()
	mux.HandleFunc(pattern, func(http.ResponseWriter, *http.Request) {})
	mux.ServeHTTP(&c.sent, r) // remembers the project in r, as on a server
	c.request = r
	return c
}

// call posts a body and returns the body of the response, which is valid until the next call.
func (c *caller) call(posted []byte) []byte {
	c.received.Reset(posted)
	c.request.Body, c.request.ContentLength = &c.received, int64(len(posted))
	clear(c.sent.header)
	c.sent.status, c.sent.body = http.StatusOK, c.sent.body[:0]
	c.handler.ServeHTTP(&c.sent, c.request)
	return c.sent.body
}

// A recorder is a ResponseWriter that records the response. It has the optional methods of the
// ResponseWriter in net/http.
type recorder struct {
	header http.Header
	status int
	body   []byte
}

func (a *recorder) Header() http.Header              { return a.header }
func (a *recorder) WriteHeader(status int)           { a.status = status }
func (a *recorder) Write(p []byte) (int, error)      { a.body = append(a.body, p...); return len(p), nil }
func (a *recorder) Flush()                           {}
func (a *recorder) SetReadDeadline(time.Time) error  { return nil }
func (a *recorder) SetWriteDeadline(time.Time) error { return nil }

// respond posts a body to h and returns the body of the response. It returns an error unless the status
// is 200 and the response has data and no errors.
func respond(h http.Handler, posted []byte) ([]byte, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c := newCaller(ctx, h)
	got := c.call(posted)
	if c.sent.status != http.StatusOK || bytes.Contains(got, []byte(`"errors"`)) ||
		!bytes.Contains(got, []byte(`"data"`)) {
		return nil, fmt.Errorf("response has status %d and body %.300s; the request was %.300s", c.sent.status, got,
			posted)
	}
	return bytes.Clone(got), nil
}
