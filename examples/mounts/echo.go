package mounts

import (
	"net/http"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
)

// Echo mounts h on an echo server. echo does not set the path value, so the Handler reads the
// project from the path: it is the second to last segment.
func Echo(h http.Handler) http.Handler {
	e := echo.New()
	e.Use(middleware.Recover())
	e.Any("/:project/graphql", echo.WrapHandler(h))
	e.Any("/:project/graphql/", echo.WrapHandler(h)) // no redirect from the other form
	e.Any("/graphql", echo.WrapHandler(h))           // for clients that send no project
	e.Any("/graphql/", echo.WrapHandler(h))
	return e
}
