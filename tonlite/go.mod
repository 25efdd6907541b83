module github.com/chaingql/chaingql/tonlite

go 1.25.0

require (
	github.com/chaingql/chaingql v0.1.0
	github.com/coder/websocket v1.8.15
	github.com/xssnick/tonutils-go v1.12.0
)

require (
	github.com/agnivade/levenshtein v1.2.2 // indirect
	github.com/graphql-go/graphql v0.8.1 // indirect
	github.com/graphql-go/handler v0.2.4 // indirect
	github.com/oasisprotocol/curve25519-voi v0.0.0-20220328075252-7dd334e3daae // indirect
	github.com/sigurn/crc16 v0.0.0-20211026045750-20ab5afb07e3 // indirect
	github.com/vektah/gqlparser/v2 v2.5.64 // indirect
	golang.org/x/crypto v0.32.0 // indirect
	golang.org/x/sys v0.29.0 // indirect
)

replace github.com/chaingql/chaingql => ../
