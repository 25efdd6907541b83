// Package mounts shows how to mount the Handler with net/http and with common routers.
package mounts

import (
	"net/http"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
)

// Chi mounts h on a chi router with middleware for logs, panics and compression. chi passes
// {project} as a path value.
func Chi(h http.Handler) http.Handler {
	r := chi.NewRouter()
	r.Use(middleware.Logger, middleware.Recoverer, middleware.Compress(5))
	r.Handle("/{project}/graphql", h)
	r.Handle("/{project}/graphql/", h) // no redirect from the other form
	r.Handle("/graphql", h)            // for clients that send no project
	r.Handle("/graphql/", h)
	return r
}
