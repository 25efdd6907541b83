package chaingql

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
)

// A Denial describes a client that was not let in. It has no part of what the client
// presented as credentials.
type Denial struct {
	// Project is the project that the request was for, as in Credentials. If it is not
	// what you expect, the Handler is mounted under a path that does not end in
	// /<project>/<name>: under /api/graphql, every project is "api".
	Project string
	// Path is the path of the URL, without the query, cut at 256 bytes.
	Path string
	// Remote is the client's address, or a proxy's.
	Remote string
	// Code says why, as the code of an error: UNAUTHENTICATED, RATE_LIMITED,
	// LIMIT_EXCEEDED for a payload of connection_init that is too large, or BAD_REQUEST
	// for a socket from a foreign Origin.
	Code string
	// Err is the reason, which the client does not receive: the Authorizer's error,
	// such as RateLimited, or one of this package. With StaticProjects it wraps
	// ErrUnauthorized and says whether the project is unknown, or the secret is
	// missing, wrong, or for a project that has none.
	Err error
}

// maxDenialText is the size in bytes of the longest path and project in a Denial. A client can send a megabyte.
const maxDenialText = 256

func denial(r *http.Request, project string, err error) Denial {
	return Denial{Project: cut(project), Path: cut(requestPath(r)), Remote: r.RemoteAddr, Err: err}
}

// cut returns the beginning of text, and keeps nothing of the rest.
func cut(text string) string { return strings.Clone(text[:min(len(text), maxDenialText)]) }

// denied reports that a client was not let in, unless the Authorizer failed, which is logged as an error.
func (e *events) denied(ctx context.Context, d Denial, no *refusal) {
	if no.status >= http.StatusInternalServerError {
		return
	}
	d.Code = no.Code
	e.log.LogAttrs(ctx, slog.LevelDebug, "chaingql: access denied", slog.String("project", d.Project),
		slog.String("path", d.Path), slog.String("remote", d.Remote), slog.String("code", d.Code), slog.Any("error", d.Err))
	if e.AccessDenied != nil {
		e.call(ctx, "AccessDenied", func() { e.AccessDenied(ctx, d) })
	}
}

func (e *events) opened(ctx context.Context, s Socket) {
	e.log.LogAttrs(ctx, slog.LevelDebug, "chaingql: socket opened", slog.String("protocol", s.Protocol),
		slog.String("project", s.Project), slog.String("remote", s.Remote))
	if e.SocketOpened != nil {
		e.call(ctx, "SocketOpened", func() { e.SocketOpened(ctx, s) })
	}
}

func (e *events) closed(ctx context.Context, s Socket, why error) {
	e.log.LogAttrs(ctx, slog.LevelDebug, "chaingql: socket closed", slog.String("protocol", s.Protocol),
		slog.String("project", s.Project), slog.String("remote", s.Remote), slog.String("reason", string(reasonOf(why))), slog.Any("error", why))
	if e.SocketClosed != nil {
		e.call(ctx, "SocketClosed", func() { e.SocketClosed(ctx, s, reasonOf(why), why) })
	}
}

// limit tells that a limit was hit; "" is none.
func (e *events) limit(ctx context.Context, name string) {
	if name == "" {
		return
	}
	e.log.LogAttrs(ctx, slog.LevelDebug, "chaingql: limit hit", slog.String("limit", name))
	if e.LimitHit != nil {
		e.call(ctx, "LimitHit", func() { e.LimitHit(ctx, name) })
	}
}
