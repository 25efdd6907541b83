// Package otelchaingql reports the operations of a [chaingql.Handler] to OpenTelemetry. It creates
// spans for each operation, and metrics of operations, sockets, blocks, limits and the source.
//
//	h := chaingql.New(backend, &chaingql.Options{Hooks: otelchaingql.Hooks(nil)})
//	chaingql.Mount(mux, "/{project}/graphql", otelhttp.NewHandler(h, "graphql", otelhttp.WithServerName("api.example:443")))
//
// It depends only on the API of OpenTelemetry. The host chooses the SDK and the exporter, for example
// for Prometheus or for a collector. The README lists all metrics and explains the spans.
package otelchaingql
