package main

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
)

// told prints what a handler answers to pages.
func told(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(&answer{w, r}, r)
	})
}

type answer struct {
	http.ResponseWriter
	asked *http.Request
}

func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

func (a *answer) WriteHeader(status int) {
	a.tell(status)
	a.ResponseWriter.WriteHeader(status)
}

// Hijack opens a socket, whose header is not written through us.
func (a *answer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	a.tell(http.StatusSwitchingProtocols)
	return http.NewResponseController(a.ResponseWriter).Hijack()
}

func (a *answer) tell(status int) {
	line := fmt.Sprintf("%s %s %d", a.asked.Method, a.asked.Header.Get("Origin"), status)
	if origin := a.Header().Get("Access-Control-Allow-Origin"); origin != "" {
		line += ", readable by " + origin
	}
	if id := a.asked.Header.Get("Last-Event-ID"); id != "" {
		line += ", after " + id
	}
	fmt.Println(line)
}
