package otelchaingql

import (
	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/chaingql/chaingql"
)

// Attribute keys that the semantic conventions do not define.
const (
	keyTransport = attribute.Key("chaingql.transport")
	keyProject   = attribute.Key("chaingql.project")
	keyReason    = attribute.Key("chaingql.reason")
	keyOrigin    = attribute.Key("chaingql.origin")
	keyLimit     = attribute.Key("chaingql.limit")

	// Only on spans.
	keyHash      = attribute.Key("chaingql.document.hash")
	keyDelivered = attribute.Key("chaingql.blocks.delivered")
	keyCursor    = attribute.Key("chaingql.cursor")
	keyLived     = attribute.Key("chaingql.subscription.duration")
)

func transport(name chaingql.Transport) attribute.KeyValue { return keyTransport.String(string(name)) }
func reason(why chaingql.Reason) attribute.KeyValue        { return keyReason.String(string(why)) }
func limitName(name string) attribute.KeyValue             { return keyLimit.String(name) }
func operationType(of chaingql.OperationType) attribute.KeyValue {
	return semconv.GraphQLOperationTypeKey.String(string(of))
}
func failure(out chaingql.Outcome) attribute.KeyValue {
	return semconv.ErrorTypeKey.String(failureOf(out))
}

// Values of attributes. Of each of them there is one counter.
var (
	types      = [...]chaingql.OperationType{chaingql.OperationQuery, chaingql.OperationSubscription}
	transports = [...]chaingql.Transport{chaingql.TransportHTTP, chaingql.TransportSSE,
		chaingql.TransportGraphQLWS, chaingql.TransportGraphQLTransportWS}
	origins = [...]chaingql.Source{chaingql.SourceLive, chaingql.SourceWindow, chaingql.SourceBackend}
)

// other replaces names and errors that are not in a list, as the semantic conventions recommend.
const other = "_OTHER"

// failureOf returns the value of error.type: the code that the client of a query received, or the
// reason why a subscription ended. It returns "" if the operation did not fail.
func failureOf(out chaingql.Outcome) string {
	switch {
	case !out.Failed:
		return ""
	case out.Reason != "":
		return string(out.Reason)
	case out.Code != "":
		return out.Code
	}
	return other
}

// notServiceFault reports whether the outcome is not a failure of the service: a query with an error that
// is the client's fault, or a subscription that ended because of its client or the host.
func notServiceFault(out chaingql.Outcome) bool {
	switch out.Code {
	case "BAD_USER_INPUT", "CURSOR_TOO_OLD", "LIMIT_EXCEEDED":
		return true
	}
	return !out.Failed || out.Reason != "" && out.Reason != chaingql.ReasonLost && out.Reason != chaingql.ReasonGap
}

// names is the set of operation names that telemetry may contain.
type names map[string]bool

// of returns the metric attribute for a name; "" means no attribute.
func (n names) of(name string) string {
	switch {
	case len(n) == 0:
		return ""
	case n[name]:
		return name
	}
	return other
}
