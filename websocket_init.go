package chaingql

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/chaingql/chaingql/internal/gqlws"
	"github.com/chaingql/chaingql/internal/strictjson"
)

// Init admits or refuses the client of a connection_init.
func (s *session) Init(ctx context.Context, payload []byte) (context.Context, error) {
	admitted, err := s.authorizeInit(ctx, payload)
	if err == nil || errors.Is(err, gqlws.ErrGone) {
		return admitted, err
	}
	no := s.h.refused(ctx, err)
	s.Limit(no.Limit)
	d := Denial{Project: cut(s.by.project), Path: cut(s.path), Remote: s.remote, Err: err}
	s.h.events.denied(ctx, d, no)
	if no.status == statusUnauthorized {
		return nil, err
	}
	return nil, requestError(no.retry > 0, no.Error)
}

// authorizeInit authorizes the credentials of connection_init together with those of the handshake.
func (s *session) authorizeInit(ctx context.Context, payload []byte) (context.Context, error) {
	said, err := s.initPayload(payload)
	if err != nil {
		return nil, err
	}
	s.keepTrace(traceOfFields(said))
	given, err := s.initCredentials(said)
	if err != nil {
		return nil, err
	}
	if said != nil {
		given.Payload = bytes.Clone(payload)
	}
	if s.by.transport == TransportGraphQLTransportWS {
		s.shown = Credentials{} // no second connection_init can follow
	} else if s.shown.Request != nil {
		s.shown.Request = withoutHeaders(s.shown.Request)
	}
	if s.authorized != nil {
		ctx = socketContext{ctx, context.WithoutCancel(s.authorized), s.authorized}
		if len(said) == 0 {
			return ctx, nil
		}
	}
	if !s.h.inits.Enter(ctx) {
		return nil, cmp.Or(ctx.Err(), errTooManyInits)
	}
	defer s.h.inits.Leave()
	if s.left() {
		return nil, gqlws.ErrGone
	}
	return s.h.admit(ctx, given)
}

var errTooManyInits = errors.New("chaingql: too many concurrent calls of Authorize for connection_init")

// keepTrace sets the trace context of the operations that have none of their own: that of the first connection_init, or
// that of the handshake. It is kept and counted as long as the socket is open, because subscriptions may share it. If
// there is no room, it is dropped.
func (s *session) keepTrace(t Trace) {
	if s.traceBytes > 0 || !s.h.events.traces() {
		return
	}
	s.by.trace = t.or(s.by.trace)
	n := s.by.trace.size()
	if full := s.h.subscriptionQuota.reserve(n, &s.peer.held); full != nil {
		s.Limit(full.Limit)
		s.by.trace = Trace{}
		return
	}
	s.traceBytes = n
}

// maxPayload is the maximum size in bytes of a connection_init payload that is decoded. It is the size of headers that
// servers commonly accept.
const maxPayload = 8 << 10

var errPayloadTooLarge = errors.New("chaingql: payload of connection_init is too large")

// initPayload parses the payload of connection_init. It returns nil if neither the Authorizer nor a hook needs it, or
// if it is too large for a hook.
func (s *session) initPayload(payload []byte) (map[string]any, error) {
	open := s.h.auth == (allowAll{})
	if payload == nil || open && !s.h.events.traces() {
		return nil, nil
	}
	if len(payload) > maxPayload {
		if open {
			return nil, nil
		}
		return nil, errPayloadTooLarge
	}
	v, err := strictjson.Read(payload, s.h.opts.Limits.Depth)
	if err != nil && !open {
		return nil, fmt.Errorf("%w: payload of connection_init: %w", ErrUnauthorized, err)
	}
	fields, _ := v.(map[string]any)
	return fields, nil
}

// initCredentials returns the credentials of the handshake. A secret in connection_init replaces that of the handshake.
// The field Authorization has the form of the HTTP header of that name, which browsers cannot set for a WebSocket. The
// field accessKey counts only if there is no Authorization.
func (s *session) initCredentials(fields map[string]any) (Credentials, error) {
	c := s.shown
	if s.h.auth == (allowAll{}) {
		return c, nil
	}
	if header, ok := fields["Authorization"].(string); ok {
		secret, ok, err := basicSecret(header)
		if ok || err != nil {
			c.Secret, c.HasSecret = secret, ok
		}
		return c, err
	}
	if key, ok := fields["accessKey"].(string); ok {
		c.Secret, c.HasSecret = key, true
	}
	return c, nil
}

// A socketContext is the context of a socket with the values and the deadline of the context that the Authorizer
// returned for the handshake. It is done when the socket ends. The Authorizer's own context is done when the handshake
// ends, and the socket itself ends at the deadline, when the credentials expire.
type socketContext struct {
	context.Context
	values, authorized context.Context
}

// Value returns the value of the Authorizer's context. The fallback is for the context package, which uses a private
// key to find the parent that cancels a context.
func (c socketContext) Value(key any) any {
	if v := c.values.Value(key); v != nil {
		return v
	}
	return c.Context.Value(key)
}

func (c socketContext) Deadline() (time.Time, bool) { return c.authorized.Deadline() }
