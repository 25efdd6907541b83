package natschain

import (
	"errors"
	"net/url"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A failure is an error in one line.
type failure struct {
	what  string
	cause error
}

func (f *failure) Error() string {
	return "natschain: " + f.what + ": " + strings.Join(strings.Fields(f.cause.Error()), " ")
}

func (f *failure) Unwrap() error { return f.cause }

func failed(what string, err error) error {
	var already *failure
	if err == nil || errors.As(err, &already) {
		return err
	}
	return &failure{what, err}
}

// errURL stands in for the parser's error, which quotes the URL and the
// password in it.
var errURL = errors.New("natschain: the URL is malformed: write nats://user:password@host:port, " +
	"several with commas between, with special characters percent-encoded")

var (
	errClosed   = errors.New("natschain: the Backend was closed")
	errLost     = errors.New("natschain: the connection was lost")
	errReplaced = errors.New("natschain: the stream is not the one that was read before: it was deleted and made anew")
)

// checkURL sees to it that no parser is given a URL that it would quote. An @
// behind the host is the end of a token or password with a /, ? or # in it, whose
// beginning would be looked up, and quoted, as a host.
func checkURL(urls string) error {
	for _, one := range strings.Split(urls, ",") {
		one = strings.TrimSpace(one)
		if one != "" && !strings.Contains(one, "://") {
			one = "nats://" + one // as nats.go has it
		}
		u, err := url.Parse(one)
		if err != nil || one != "" && u.Host == "" || strings.Contains(u.Path+u.RawQuery+u.Fragment, "@") {
			return errURL
		}
	}
	return nil
}

// denied is err, or the permission that is lacking: the server tells of that
// apart from the request, which is never answered.
func (b *Backend) denied(err error) error {
	if last := b.nc.LastError(); err != nil && b.passing(err) && errors.Is(last, nats.ErrPermissionViolation) {
		return last
	}
	return err
}

// refused is the server's own no to a request, in place of an answer.
func refused(err error, codes ...jetstream.ErrorCode) bool {
	var told *jetstream.APIError
	if errors.As(err, &told) {
		for _, code := range codes {
			if told.ErrorCode == code {
				return true
			}
		}
	}
	return false
}
