// Package otelchaingql exports telemetry of a [chaingql.Handler] with OpenTelemetry: a span for
// each operation, and metrics of operations, sockets, blocks, limits and the source.
//
//	h := chaingql.New(backend, &chaingql.Options{Hooks: otelchaingql.Hooks(nil)})
//	chaingql.Mount(mux, "/{project}/graphql", otelhttp.NewHandler(h, "graphql", otelhttp.WithServerName("api.example:443")))
//
// It depends only on OpenTelemetry's API. The host chooses the SDK and the exporter, for example
// Prometheus or a collector. The README lists all metrics and explains the spans.
package otelchaingql
