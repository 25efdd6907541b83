// Package gqlgen serves the chain by 99designs/gqlgen: generated.go and models.go
// are what it makes of the schema, with its own settings.
package gqlgen

//go:generate go tool gqlgen generate
