package mounts

import (
	"net/http"

	"github.com/gin-gonic/gin"
)

// Gin mounts h on a gin engine. gin does not set the path value, so the Handler reads the project
// from the path: it is the second to last segment.
func Gin(h http.Handler) http.Handler {
	r := gin.New()
	r.Use(gin.Recovery())
	for _, path := range []string{
		"/:project/graphql", "/:project/graphql/", // no redirect from the other form
		"/graphql", "/graphql/", // for clients that send no project
	} {
		r.Any(path, gin.WrapH(h))
		r.Handle("QUERY", path, gin.WrapH(h)) // Any does not include it
	}
	return r
}
