// Package otelchaingql exports the telemetry of a [chaingql.Handler] with OpenTelemetry: spans for
// queries and subscriptions, and metrics for operations, sockets, blocks, limits and the source.
//
//	h := chaingql.New(backend, &chaingql.Options{Hooks: otelchaingql.Hooks(nil)})
//	served := otelhttp.NewHandler(h, "graphql", otelhttp.WithServerName("api.example:443"))
//	chaingql.Mount(mux, "/{project}/graphql", served)
//
// The package depends only on OpenTelemetry's API. The host chooses the SDK and the exporter, for
// example Prometheus or a collector. The README lists all metrics and explains the spans.
package otelchaingql
