package mounts

import (
	"net/http"

	"github.com/gin-gonic/gin"
)

// Gin mounts h on a gin engine. gin keeps :project to itself, so the Handler
// reads the project from the path: it is the segment before the last.
func Gin(h http.Handler) http.Handler {
	r := gin.New()
	r.Use(gin.Recovery())
	r.Any("/:project/graphql", gin.WrapH(h))
	r.Any("/:project/graphql/", gin.WrapH(h)) // so that neither form is redirected
	r.Any("/graphql", gin.WrapH(h))           // of clients whose URL names no project
	r.Any("/graphql/", gin.WrapH(h))
	return r
}
