package main

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
)

// logged returns a handler that calls h and prints a line for each response.
func logged(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(&answer{w, r}, r)
	})
}

// An answer is a ResponseWriter that prints a line when the header is written.
type answer struct {
	http.ResponseWriter
	asked *http.Request
}

func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

func (a *answer) WriteHeader(status int) {
	a.print(status)
	a.ResponseWriter.WriteHeader(status)
}

// Hijack prints the line of a WebSocket handshake, which does not call WriteHeader.
func (a *answer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	a.print(http.StatusSwitchingProtocols)
	return http.NewResponseController(a.ResponseWriter).Hijack()
}

func (a *answer) print(status int) {
	line := fmt.Sprintf("%s %s %d", a.asked.Method, a.asked.Header.Get("Origin"), status)
	if origin := a.Header().Get("Access-Control-Allow-Origin"); origin != "" {
		line += ", readable by " + origin
	}
	if id := a.asked.Header.Get("Last-Event-ID"); id != "" {
		line += ", after " + id
	}
	fmt.Println(line)
}
