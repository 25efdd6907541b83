package mounts

import "net/http"

// NetHTTP mounts h on net/http's own mux.
func NetHTTP(h http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/{project}/graphql", h)
	mux.Handle("/{project}/graphql/{$}", h) // so that neither form is redirected
	return mux
}
