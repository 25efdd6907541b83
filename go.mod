module github.com/chaingql/chaingql

go 1.25

require (
	github.com/coder/websocket v1.8.15
	github.com/graphql-go/graphql v0.8.1
	github.com/graphql-go/handler v0.2.4
	github.com/vektah/gqlparser/v2 v2.5.64
)

require github.com/agnivade/levenshtein v1.2.2 // indirect

// Patterns such as ./... would walk into them, also while npm changes them.
ignore node_modules
