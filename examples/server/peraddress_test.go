package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

func TestAddressWithTooManyInProgressIsRefusedAndOthersAreNot(t *testing.T) {
	limits := &perAddress{max: 2}
	handler := chaingql.New(memchain.New(), &chaingql.Options{Hooks: limits.hooks()})
	t.Cleanup(func() { _ = handler.Shutdown(context.Background()) })
	limited := limits.middleware(handler)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.RemoteAddr = r.Header.Get("X-Forwarded-For")
		limited.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)

	// opened tries again after a refusal, because the handshake of the socket before may still be in progress when its
	// client has received the response.
	opened := func(remote string) *websocket.Conn {
		for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			c, _, err := websocket.Dial(t.Context(), server.URL+"/demo/graphql", &websocket.DialOptions{
				Subprotocols: []string{"graphql-transport-ws"}, HTTPHeader: http.Header{"X-Forwarded-For": {remote}},
			})
			if err == nil {
				t.Cleanup(func() { _ = c.CloseNow() })
				return c
			}
			if time.Now().After(deadline) {
				t.Fatal(err)
			}
		}
	}
	status := func(remote string) int {
		r, _ := http.NewRequestWithContext(t.Context(), "GET", server.URL+"/demo/graphql?query={info{version}}", nil)
		r.Header.Set("X-Forwarded-For", remote)
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		return response.StatusCode
	}

	expect := func(what, remote string, want int) { // soon, because a socket may be counted after its handshake
		t.Helper()
		for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			got := status(remote)
			if got == want {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("a request from %s, which has %s, received status %d, want %d", remote, what, got, want)
			}
		}
	}

	for _, client := range []struct{ first, second, other string }{
		{"192.0.2.1", "192.0.2.1:80", "192.0.2.2"},
		{"2001:db8::1", "[2001:db8::2:1]:80", "2001:db8:0:1::1"},
		{"::ffff:192.0.2.3", "192.0.2.3", "::ffff:192.0.2.4"},
	} {
		opened(client.first)
		expect("a socket open", client.first, http.StatusOK)
		second := opened(client.second)
		expect("two sockets open", client.first, http.StatusServiceUnavailable)
		expect("no socket open", client.other, http.StatusOK)
		_ = second.CloseNow()
		expect("one of two sockets closed", client.first, http.StatusOK)
	}
	server.Close()
	if err := handler.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(limits.inProgress) != 0 {
		t.Errorf("%v are still in progress after the shutdown", limits.inProgress)
	}
}
