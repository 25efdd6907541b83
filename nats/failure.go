package natschain

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/chaingql/chaingql"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A failure is an error with a text of a single line. If a later call may succeed, because the
// server cannot be reached or does not answer in time, or because too many calls are in progress,
// it also wraps [chaingql.ErrUnavailable].
type failure struct {
	op    string
	cause error
}

func (f *failure) Error() string {
	return "natschain: " + f.op + ": " + strings.Join(strings.Fields(f.cause.Error()), " ")
}

func (f *failure) Unwrap() []error {
	if isUnavailable(f.cause) {
		return []error{f.cause, chaingql.ErrUnavailable}
	}
	return []error{f.cause}
}

// isUnavailable reports whether err shows that the server or the leader of the stream cannot be
// reached or does not answer in time, or that a limit on concurrent calls was reached. If the
// caller has canceled its context, that says nothing about the server.
func isUnavailable(err error) bool {
	if errors.Is(err, context.Canceled) {
		return false
	}
	var network net.Error
	if errors.As(err, &network) {
		return true
	}
	return isAny(err, context.DeadlineExceeded, nats.ErrTimeout, nats.ErrNoResponders, nats.ErrDisconnected,
		nats.ErrNoServers, nats.ErrConnectionClosed, nats.ErrReconnectBufExceeded, jetstream.ErrNoStreamResponse,
		errLost, errTorn, errMirror, errTooManySearches, errTooManyPages) ||
		hasCode(err, clusterNotAvailable, clusterNotLeader)
}

// isAny reports whether err is one of the targets.
func isAny(err error, targets ...error) bool {
	return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
}

func failed(what string, err error) error {
	var already *failure
	if err == nil || errors.As(err, &already) {
		return err
	}
	return &failure{what, err}
}

// errURL replaces the parser's error, which contains the URL with its password.
var errURL = errors.New("natschain: the URL is malformed: write nats://user:password@host:port, " +
	"separate several URLs with commas, and percent-encode special characters")

var (
	errClosed   = errors.New("natschain: the Backend was closed")
	errLost     = errors.New("natschain: the connection was lost")
	errReplaced = errors.New("natschain: the stream contains other messages than before")

	errIncompleteIndex = fmt.Errorf("the index of hashes is not complete: %w", chaingql.ErrLookupNotSupported)
)

// checkURL rejects URLs that nats.go would quote in an error, because they may contain a
// password. If an @ follows the host, a token or password contains an unescaped /, ? or #.
// nats.go would use the part before that character as a host name and quote it.
func checkURL(urls string) error {
	for _, one := range strings.Split(urls, ",") {
		one = strings.TrimSpace(one)
		if one != "" && !strings.Contains(one, "://") {
			one = "nats://" + one // as nats.go does
		}
		u, err := url.Parse(one)
		if err != nil || one != "" && u.Host == "" || strings.Contains(u.Path+u.RawQuery+u.Fragment, "@") {
			return errURL
		}
	}
	return nil
}

// permissionError returns the permission violation that caused err if there is one, and err
// otherwise. The server does not respond to a request without permission, but reports the
// violation separately. The argument since is the connection's last error before the request, which
// is not the cause of err.
func (b *Backend) permissionError(since, err error) error {
	last := b.nc.LastError()
	if err != nil && b.retryable(err) && errors.Is(last, nats.ErrPermissionViolation) && last != since {
		return last
	}
	return err
}

// hasCode reports whether err is an error response from the server with one of the codes.
func hasCode(err error, codes ...jetstream.ErrorCode) bool {
	var apiErr *jetstream.APIError
	return errors.As(err, &apiErr) && slices.Contains(codes, apiErr.ErrorCode)
}
