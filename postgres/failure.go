package postgres

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/chaingql/chaingql"
	"github.com/jackc/pgx/v5/pgconn"
)

// A failure is a one-line error that wraps an error of pgx. It omits the connection
// settings that pgx includes in some errors, because they contain the password. If the database
// cannot be reached, does not answer in time, or has too much to read, it also wraps [chaingql.ErrUnavailable].
type failure struct {
	op          string
	cause       error
	unavailable bool
}

func (f *failure) Error() string {
	// An attempt to connect with TLS and one without may report the same error.
	lines := slices.Compact(strings.Split(f.cause.Error(), "\n"))
	return "postgres: " + f.op + ": " + strings.Join(strings.Fields(strings.Join(lines, "; ")), " ")
}

func (f *failure) Unwrap() []error {
	if f.unavailable {
		return []error{f.cause, chaingql.ErrUnavailable}
	}
	return []error{f.cause}
}

// isUnavailable reports whether err shows that the database cannot be reached, does not answer
// in time, or has too much to read. If the caller has canceled its context, that says nothing about the database.
func isUnavailable(err error) bool {
	var connecting *pgconn.ConnectError
	var pgErr *pgconn.PgError
	switch {
	case errors.Is(err, context.Canceled):
		return false
	case errors.As(err, &connecting), isBroken(err), errors.Is(err, context.DeadlineExceeded), pgconn.Timeout(err),
		errors.Is(err, errBusy):
		return true
	case errors.As(err, &pgErr):
		// The classes of connection errors and of missing resources, such as connections, a server that starts, and
		// the statement_timeout, lock_timeout and transaction_timeout of the role or the DSN.
		return strings.HasPrefix(pgErr.Code, "08") || strings.HasPrefix(pgErr.Code, "53") || isRolledBack(err) ||
			slices.Contains([]string{"57P03", "57014", "55P03", "25P04"}, pgErr.Code)
	}
	return false
}

// isRolledBack reports whether the server rolled back a statement that may succeed if it is repeated. A read-only
// replica does that to statements that conflict with a change of the primary.
func isRolledBack(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && strings.HasPrefix(pgErr.Code, "40")
}

// isReplica reports whether LISTEN, or beginning a transaction that writes, failed because the server is a read-only
// replica.
func isReplica(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && (pgErr.Code == "25006" || pgErr.Code == "0A000")
}

// failed returns a failure of the operation op. If the server or a pooler rejected a key of
// the DSN, it replaces err with errKey.
func failed(op string, err error) error {
	unavailable := isUnavailable(err)
	var connecting *pgconn.ConnectError
	if errors.As(err, &connecting) {
		err = connecting.Unwrap()
		if unknownKey(err, connecting.Config.RuntimeParams) {
			err = errKey
		}
	}
	// These codes mean that a statement was prepared on one connection and executed on another.
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) && (pgErr.Code == "42P05" || pgErr.Code == "26000") {
		op += " (for PgBouncer in transaction mode set Options.PollInterval)"
	}
	return &failure{op, err, unavailable}
}

// unknownKey reports whether err says that the server or a pooler rejected a key of the DSN,
// and quotes that key. pgx sends unknown keys to the server. Such a key may be a part of a
// password that was not quoted, or a whole URL with an invalid scheme.
func unknownKey(err error, keys map[string]string) bool {
	text := err.Error() // with the errors of all addresses that were tried
	rejected := slices.ContainsFunc([]string{"42704", "42602", "08P01"}, func(code string) bool {
		return strings.Contains(text, "(SQLSTATE "+code+")")
	})
	for key := range keys {
		if rejected && strings.Contains(text, key) {
			return true
		}
	}
	return false
}

// checkHosts rejects hosts that contain an @. If a password contains an unescaped @, pgx
// treats the rest of the password as part of the host, and would quote it in errors.
func checkHosts(c *pgconn.Config) error {
	for _, s := range servers(c) {
		if strings.LastIndexByte(s.Host, '@') > 0 && s.Host[0] != '/' { // a host that begins with / is a Unix socket
			return errDSN
		}
	}
	return nil
}

// dsnError returns an error to report instead of err, which pgx returned for an invalid DSN.
// The error of pgx quotes the DSN, and may contain the password if the DSN is malformed.
func dsnError(err error) error {
	var file *fs.PathError // for example of the file that sslrootcert names
	if errors.As(err, &file) {
		return &failure{op: "open a file that the DSN names", cause: file}
	}
	return errDSN
}

var (
	errDSN = errors.New("postgres: the DSN, or a setting from the environment (PGPORT, PGSERVICE, ...), " +
		"is malformed: write postgres://user:password@host:port/database?key=value, " +
		"with special characters percent-encoded, " +
		"or key=value pairs with single quotes around values that contain spaces")
	errKey = errors.New("the server rejects a key of the DSN: it may be misspelled, or part of a value " +
		"that must be percent-encoded or in single quotes")
)

var (
	errClosed   = errors.New("postgres: the Backend was closed")
	errNoState  = errors.New("table chaingql_state has lost its row")
	errReplaced = fmt.Errorf("the chain was dropped and created again, so Writers must be opened again: %w",
		chaingql.ErrChainReplaced)
)
