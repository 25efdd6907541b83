// Package plan makes GraphQL documents of strangers safe and fast to run. A
// document is parsed and validated by gqlparser behind limits of its own,
// compiled once against a schema into a plan, and kept in a cache that is
// bounded in bytes, where it is known by its text, and by its text without the
// literals in it. Running a plan appends JSON in the order of the request.
//
// graphql-go holds the schema; its parser, validator and executor are not used:
// documents of a few bytes bring them down.
package plan
