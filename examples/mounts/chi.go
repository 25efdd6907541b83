// Package mounts shows the handler under routers that people use beside
// net/http's own.
package mounts

import (
	"net/http"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
)

// Chi mounts h under a chi router, with its middleware for logs, panics and
// compression. chi hands the wildcard {project} on as a path value.
func Chi(h http.Handler) http.Handler {
	r := chi.NewRouter()
	r.Use(middleware.Logger, middleware.Recoverer, middleware.Compress(5))
	r.Handle("/{project}/graphql", h)
	r.Handle("/{project}/graphql/", h) // so that neither form is redirected
	r.Handle("/graphql", h)            // of clients whose URL names no project
	r.Handle("/graphql/", h)
	return r
}
