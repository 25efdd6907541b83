// Package explorer is a web site for people who meet the API for the first time:
// GraphiQL with the schema's documents, and a live view of the chain.
//
//	mux.Handle("/{project}/graphql", h) // of chaingql.New
//	mux.Handle("/", explorer.New(nil))
//
// It works offline and leaves the host's origin for nothing but the API, where
// that is elsewhere. Its pages come with a Content-Security-Policy that admits
// their own scripts alone. A secret that is typed in is never in a URL and never
// in localStorage; it is kept for the browser's tab where that was asked for.
//
// What the pages are made of is in assets, built by `make explorer`, with the
// licences in LICENSES.txt, which is served beside them.
package explorer
