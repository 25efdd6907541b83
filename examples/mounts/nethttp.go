package mounts

import "net/http"

// NetHTTP mounts h on an http.ServeMux.
func NetHTTP(h http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/{project}/graphql", h)
	mux.Handle("/{project}/graphql/{$}", h) // no redirect from the other form
	mux.Handle("/graphql", h)               // for clients that send no project
	mux.Handle("/graphql/{$}", h)
	return mux
}
