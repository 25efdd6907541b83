package otelchaingql

import (
	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/chaingql/chaingql"
)

// These attribute keys are not defined by the semantic conventions.
const (
	keyTransport = attribute.Key("chaingql.transport")
	keyProject   = attribute.Key("chaingql.project")
	keyReason    = attribute.Key("chaingql.reason")
	keyOrigin    = attribute.Key("chaingql.origin")
	keyLimit     = attribute.Key("chaingql.limit")

	// These keys occur only on spans.
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

// These are the possible values of three attributes. The metrics have a precomputed attribute set for each value.
var (
	types      = [...]chaingql.OperationType{chaingql.OperationQuery, chaingql.OperationSubscription}
	transports = [...]chaingql.Transport{chaingql.TransportHTTP, chaingql.TransportSSE, chaingql.TransportMultipart,
		chaingql.TransportGraphQLWS, chaingql.TransportGraphQLTransportWS}
	origins = [...]chaingql.Source{chaingql.SourceLive, chaingql.SourceWindow, chaingql.SourceBackend}
)

// other replaces names and error codes that are not in a list, as the semantic conventions recommend.
const other = "_OTHER"

// failureOf returns the value of error.type for an operation that failed: the code that the client of a query received,
// or the reason why a subscription ended. It returns "" if the operation did not fail.
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

// isServiceFault reports whether the operation failed because of the service. A failed query may instead have an error
// that the client caused, and a subscription may have been ended by its client or by the host.
func isServiceFault(out chaingql.Outcome) bool {
	switch out.Code {
	case "BAD_USER_INPUT", "CURSOR_TOO_OLD", "EPOCH_CHANGED", "LIMIT_EXCEEDED", "LOOKUP_NOT_SUPPORTED":
		return false
	}
	switch out.Reason {
	case "", chaingql.ReasonLost, chaingql.ReasonGap:
		return out.Failed
	}
	return false
}

// names is the set of operation names that telemetry may contain.
type names map[string]bool

// of returns the value of the attribute graphql.operation.name for a name. It returns "" if there is no attribute.
func (n names) of(name string) string {
	switch {
	case len(n) == 0:
		return ""
	case n[name]:
		return name
	}
	return other
}
