package mounts

import "net/http"

// NetHTTP mounts h on net/http's own mux.
func NetHTTP(h http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/{project}/graphql", h)
	mux.Handle("/{project}/graphql/{$}", h) // so that neither form is redirected
	mux.Handle("/graphql", h)               // of clients whose URL names no project
	mux.Handle("/graphql/{$}", h)
	return mux
}
