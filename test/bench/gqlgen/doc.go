// Package gqlgen serves the benchmark's chain with 99designs/gqlgen, which generates generated.go and
// models.go from the schema.
package gqlgen

//go:generate go tool gqlgen generate
