package explorer_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/explorer"
	"github.com/chaingql/chaingql/memchain"
)

// This example mounts the explorer and the API on the same mux.
func ExampleNew() {
	api := chaingql.New(memchain.New(), &chaingql.Options{Authorizer: chaingql.StaticProjects{"shop": {}}})
	pages := explorer.New(&explorer.Options{Project: "shop", Title: "Our chain"})

	mux := http.NewServeMux()
	chaingql.Mount(mux, "/{project}/graphql", api)
	mux.Handle("/tools/explorer/", http.StripPrefix("/tools/explorer", pages))

	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest("GET", "/tools/explorer/live", nil))
	fmt.Println(w.Code, w.Header().Get("Content-Type"))
	// Output: 200 text/html; charset=utf-8
}
