// Package plan checks, compiles, caches and runs GraphQL documents from untrusted clients.
//
// A request passes these steps:
//
//  1. Lookup. [Cache.Prepare], PrepareCached and Find look for a compiled document: first by its text, then by its
//     fingerprint, which is the text with a placeholder for each literal. Documents that differ only in literals share
//     a plan; their literals become parameters.
//  2. Check. A new document is measured before anything that takes more than linear time: its bytes, its tokens, then
//     the depth and size of its syntax tree. Rules of gqlparser and of this package validate what is within [Limits].
//  3. Compile. Each operation becomes a [Plan]: a tree of fields with their resolvers, coerced arguments and JSON keys.
//     The cache is limited in bytes and evicts the least recently used documents.
//  4. Bind. The variables and parameters of the request are coerced. The result is a [Bound].
//  5. Run. [Bound.Run] calls the resolvers and appends the response as JSON, in the order of the request.
//
// Of graphql-go, only the schema and the types that hosts declare are used. Its parser, validator and executor never
// see a client's document: documents of a few bytes crash them. Its execution would also take more than ten times as
// long as a compiled plan (`make bench`).
package plan
