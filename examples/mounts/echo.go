package mounts

import (
	"net/http"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
)

// Echo mounts h on an echo server. echo keeps :project to itself, so the Handler
// reads the project from the path: it is the segment before the last.
func Echo(h http.Handler) http.Handler {
	e := echo.New()
	e.Use(middleware.Recover())
	e.Any("/:project/graphql", echo.WrapHandler(h))
	e.Any("/:project/graphql/", echo.WrapHandler(h)) // so that neither form is redirected
	e.Any("/graphql", echo.WrapHandler(h))           // of clients whose URL names no project
	e.Any("/graphql/", echo.WrapHandler(h))
	return e
}
