package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"time"
)

const path = "/demo/graphql"

// A caller calls a handler like net/http does and allocates nothing per call.
type caller struct {
	handler  http.Handler
	request  *http.Request
	received body
	sent     answer
}

type body struct{ bytes.Reader }

func (*body) Close() error { return nil }

// newCaller returns a caller whose requests have a cancelable context, as on a server.
func newCaller(ctx context.Context, h http.Handler) *caller {
	c := &caller{handler: h, sent: answer{header: http.Header{}}}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://127.0.0.1"+path, nil)
	if err != nil {
		panic(err) // a constant URL
	}
	r.RequestURI, r.RemoteAddr = path, "127.0.0.1:1234"
	r.Header.Set("Content-Type", "application/json")
	r.SetPathValue("project", "demo")
	c.request = r
	return c
}

// call posts a body. The response is valid until the next call.
func (c *caller) call(posted []byte) []byte {
	c.received.Reset(posted)
	c.request.Body, c.request.ContentLength = &c.received, int64(len(posted))
	clear(c.sent.header)
	c.sent.status, c.sent.body = http.StatusOK, c.sent.body[:0]
	c.handler.ServeHTTP(&c.sent, c.request)
	return c.sent.body
}

// An answer is a ResponseWriter with the optional methods that net/http's has.
type answer struct {
	header http.Header
	status int
	body   []byte
}

func (a *answer) Header() http.Header              { return a.header }
func (a *answer) WriteHeader(status int)           { a.status = status }
func (a *answer) Write(p []byte) (int, error)      { a.body = append(a.body, p...); return len(p), nil }
func (a *answer) Flush()                           {}
func (a *answer) SetReadDeadline(time.Time) error  { return nil }
func (a *answer) SetWriteDeadline(time.Time) error { return nil }

// answerOf returns the response of h to a body. It fails unless the status is 200 and the response has data, no errors.
func answerOf(h http.Handler, posted []byte) ([]byte, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c := newCaller(ctx, h)
	got := c.call(posted)
	if c.sent.status != http.StatusOK || bytes.Contains(got, []byte(`"errors"`)) || !bytes.Contains(got, []byte(`"data"`)) {
		return nil, fmt.Errorf("status %d, body %.300s, for request %.300s", c.sent.status, got, posted)
	}
	return bytes.Clone(got), nil
}
