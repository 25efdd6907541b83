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
	r.Any("/:project/graphql", gin.WrapH(h))
	r.Any("/:project/graphql/", gin.WrapH(h)) // no redirect from the other form
	r.Any("/graphql", gin.WrapH(h))           // for clients that send no project
	r.Any("/graphql/", gin.WrapH(h))
	return r
}
