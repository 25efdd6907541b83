package otelchaingql

import (
	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/chaingql/chaingql"
)

// Keys of attributes that the semantic conventions have none for.
const (
	keyTransport = attribute.Key("chaingql.transport")
	keyProject   = attribute.Key("chaingql.project")
	keyReason    = attribute.Key("chaingql.reason")
	keyOrigin    = attribute.Key("chaingql.origin")
	keyLimit     = attribute.Key("chaingql.limit")

	// On spans alone.
	keyHash      = attribute.Key("chaingql.document.hash")
	keyDelivered = attribute.Key("chaingql.blocks.delivered")
	keyCursor    = attribute.Key("chaingql.cursor")
	keyLived     = attribute.Key("chaingql.subscription.duration")
)

func transport(name string) attribute.KeyValue      { return keyTransport.String(name) }
func reason(why chaingql.Reason) attribute.KeyValue { return keyReason.String(string(why)) }
func limitName(name string) attribute.KeyValue      { return keyLimit.String(name) }
func operationType(of string) attribute.KeyValue    { return semconv.GraphQLOperationTypeKey.String(of) }
func failure(out chaingql.Outcome) attribute.KeyValue {
	return semconv.ErrorTypeKey.String(failureOf(out))
}

// Values of Operation.Type, Operation.Transport and Delivery.From.
const (
	query        = "query"
	subscription = "subscription"
)

var (
	types      = [...]string{query, subscription}
	transports = [...]string{"http", "sse", "graphql-ws", "graphql-transport-ws"}
	origins    = [...]string{"live", "window", "backend"}
)

// other stands for a name or an error that is not in a list. (General
// attributes of the semantic conventions)
const other = "_OTHER"

// failureOf is what went wrong, as error.type: the code that the client of a
// query was shown, or the reason why a subscription ended; "" where nothing did.
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

// blameless tells what is no failure of the service: a query that it rightly
// answered with an error, and a subscription whose end its client or its host
// wanted, or brought about.
func blameless(out chaingql.Outcome) bool {
	switch out.Code {
	case "BAD_USER_INPUT", "CURSOR_TOO_OLD", "LIMIT_EXCEEDED":
		return true
	}
	return !out.Failed || out.Reason != "" && out.Reason != chaingql.ReasonLost && out.Reason != chaingql.ReasonGap
}

// names are those operations' that may be told apart.
type names map[string]bool

// of returns what metrics show for a name, if they show any.
func (n names) of(name string) string {
	switch {
	case len(n) == 0:
		return ""
	case n[name]:
		return name
	}
	return other
}
