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
	for _, path := range []string{
		"/:project/graphql", "/:project/graphql/", // no redirect from the other form
		"/graphql", "/graphql/", // for clients that send no project
	} {
		e.Any(path, echo.WrapHandler(h))
		e.Add("QUERY", path, echo.WrapHandler(h)) // Any does not include it
	}
	return e
}
