// Package plan checks, compiles, caches and runs GraphQL documents from untrusted clients.
//
// A request goes through these steps:
//
//  1. Lookup. [Cache.Prepare], PrepareCached and Find look for a compiled document: first by its text, then by its
//     fingerprint, which is the text with a placeholder for each literal. Documents that differ only in literals share
//     a plan; their literals become parameters.
//  2. Check. A new document is measured before any step that takes more than linear time: first its bytes and tokens,
//     then the depth and size of its syntax tree. If the document is within [Limits], rules validate it. Its errors and
//     their locations are those of graphql-js 17.
//  3. Compile. An operation becomes a [Plan]: a tree of fields with their resolvers, coerced arguments and JSON keys.
//     If a document has several operations, each is compiled when it runs first. The compiled documents are cached. If
//     they exceed the limit on their memory, the least recently used are evicted.
//  4. Bind. The variables and parameters of the request are coerced. The result is a [Bound].
//  5. Run. [Bound.Run] calls the resolvers and appends the response as JSON, with its fields in the order of the
//     document.
//
// The package uses only two parts of graphql-go: its schema and the types that hosts declare. A client's document never
// reaches graphql-go's parser, validator and executor, because documents of a few bytes crash them. Its executor would
// also take more than ten times as long as a compiled plan (`make bench`).
package plan
