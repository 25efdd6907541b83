package chaingql

import (
	"github.com/chaingql/chaingql/internal/gqlhttp"
	"github.com/chaingql/chaingql/internal/plan"
)

// draftStatuses selects the status codes that the draft of GraphQL over HTTP has recommended since 2025. It stays false
// until the audits of graphql-http require them, because clients and proxies expect today's codes.
const draftStatuses = false

// A status is a class of responses that have the same HTTP status code.
type status int

const (
	statusData        status = iota // data without errors
	statusPartial                   // data, also null, with errors
	statusNotModified               // the client's copy is current
	statusOptions                   // the response to OPTIONS, without a body
	statusUnparsable                // the document cannot be parsed
	statusInvalid                   // the document, its variables or the name of the operation are invalid
	statusNotJSON                   // the body, the URL's query or the handshake cannot be parsed
	statusMalformed                 // a parameter is missing or has a wrong type
	statusUnauthorized
	statusForbidden // a page of another origin opens a socket
	statusMethod
	statusNotAcceptable
	statusBodyTimeout
	statusBodyTooLarge
	statusURLTooLarge
	statusHeadersTooLarge
	statusContentType
	statusRateLimited
	statusInternal
	statusUnavailable // overload or shutdown; always with Retry-After
	statusReady       // readiness: the instance should receive clients
	statusNotReady    // readiness: it should not
)

// statusCodes contains all status codes of HTTP responses, except those of a successful handshake (101) and of an event
// stream (200).
var statusCodes = [...]struct{ today, draft int }{
	statusData:            {200, 200},
	statusPartial:         {200, 294},
	statusNotModified:     {304, 304},
	statusOptions:         {204, 204},
	statusUnparsable:      {400, 400},
	statusInvalid:         {400, 422},
	statusNotJSON:         {400, 400},
	statusMalformed:       {400, 422},
	statusUnauthorized:    {401, 401},
	statusForbidden:       {403, 403},
	statusMethod:          {405, 405},
	statusNotAcceptable:   {406, 406},
	statusBodyTimeout:     {408, 408},
	statusBodyTooLarge:    {413, 413},
	statusURLTooLarge:     {413, 414},
	statusHeadersTooLarge: {431, 431},
	statusContentType:     {415, 415},
	statusRateLimited:     {429, 429},
	statusInternal:        {500, 500},
	statusUnavailable:     {503, 503},
	statusReady:           {200, 200},
	statusNotReady:        {503, 503},
}

// statusCode returns the HTTP status code of a response with the given media type. Responses to a GraphQL request that
// could be read have status 200 as application/json, because older clients discard the body of any other response.
func (h *Handler) statusCode(s status, media string) int {
	read := s == statusPartial || s == statusUnparsable || s == statusInvalid
	if read && media != gqlhttp.GraphQLResponse {
		s = statusData
	}
	if h.draftStatuses {
		return statusCodes[s].draft
	}
	return statusCodes[s].today
}

// statusOf returns the status of a response to a document that is not executed.
func statusOf(errs plan.Errors) status {
	if errs[0].Code == plan.CodeParse {
		return statusUnparsable
	}
	return statusInvalid
}
