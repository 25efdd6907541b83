// Package explorer serves a web site for exploring the API. The site has two pages: GraphiQL with
// the documentation of the schema, and a live view of the chain.
//
//	chaingql.Mount(mux, "/{project}/graphql", h) // h is a Handler from chaingql.New
//	mux.Handle("/", explorer.New(nil))
//
// The site needs no Internet access: browsers load all files from its own origin and otherwise
// contact only the API. The Content-Security-Policy of the pages permits only their own scripts. A
// secret that a visitor enters is never in a URL and never in localStorage. If the visitor requests
// it, the page keeps the secret in sessionStorage until the browser tab is closed.
//
// `make explorer` builds the files in the folder assets. Their licenses are in LICENSES.txt, which
// is served too.
package explorer
