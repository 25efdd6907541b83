module github.com/chaingql/chaingql/test/attack

go 1.25.0

require (
	github.com/chaingql/chaingql v0.1.0
	github.com/graphql-go/graphql v0.8.1
	github.com/graphql-go/handler v0.2.4
	golang.org/x/sys v0.46.0
)

require (
	github.com/agnivade/levenshtein v1.2.2 // indirect
	github.com/coder/websocket v1.8.15 // indirect
	github.com/vektah/gqlparser/v2 v2.5.64 // indirect
)

replace github.com/chaingql/chaingql => ../../
