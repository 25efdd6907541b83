// Package explorer is a web site for exploring the API: GraphiQL with the schema's documentation,
// and a live view of the chain.
//
//	chaingql.Mount(mux, "/{project}/graphql", h) // of chaingql.New
//	mux.Handle("/", explorer.New(nil))
//
// It works offline. Its pages contact only the host's origin and the API, and their
// Content-Security-Policy permits only their own scripts. A secret that a visitor enters is never
// in a URL and never in localStorage. On request it is kept for the browser tab.
//
// `make explorer` builds the pages' files in assets. Their licenses are in LICENSES.txt, which is
// also served.
package explorer
