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

	// The following attributes are only on spans.
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

// The values of three attributes. metrics has precomputed attribute sets for each value.
var (
	types      = [...]chaingql.OperationType{chaingql.OperationQuery, chaingql.OperationSubscription}
	transports = [...]chaingql.Transport{chaingql.TransportHTTP, chaingql.TransportSSE,
		chaingql.TransportGraphQLWS, chaingql.TransportGraphQLTransportWS}
	origins = [...]chaingql.Source{chaingql.SourceLive, chaingql.SourceWindow, chaingql.SourceBackend}
)

// other is the attribute value for operation names that are not in Options.OperationNames, and for
// errors without a code. The semantic conventions recommend this value.
const other = "_OTHER"

// failureOf returns the value of error.type for a failed operation. For a query, it is the code of
// the error that the client received. For a subscription, it is the reason why it ended. If the
// operation did not fail, failureOf returns "".
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

// notServiceFault reports whether the service worked correctly. This includes queries with an error
// that their client caused, and subscriptions that their client or the host ended.
func notServiceFault(out chaingql.Outcome) bool {
	switch out.Code {
	case "BAD_USER_INPUT", "CURSOR_TOO_OLD", "LIMIT_EXCEEDED":
		return true
	}
	return !out.Failed || out.Reason != "" && out.Reason != chaingql.ReasonLost && out.Reason != chaingql.ReasonGap
}

// names is the set of operation names that metrics and span names may contain.
type names map[string]bool

// of returns the value of the metric attribute for an operation name. If it returns "", the metric
// has no such attribute.
func (n names) of(name string) string {
	switch {
	case len(n) == 0:
		return ""
	case n[name]:
		return name
	}
	return other
}
