package mounts

import (
	"net/http"

	"github.com/chaingql/chaingql"
)

// NetHTTP mounts h on an http.ServeMux.
func NetHTTP(h http.Handler) http.Handler {
	mux := http.NewServeMux()
	chaingql.Mount(mux, "/{project}/graphql", h)
	chaingql.Mount(mux, "/graphql", h) // for clients that send no project
	return mux
}
