package postgres

import (
	"errors"
	"io/fs"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// A failure is an error of one line that wraps an error of pgx. It omits the connection
// settings of pgx's errors, which contain the password.
type failure struct {
	op    string
	cause error
}

func (f *failure) Error() string {
	lines := slices.Compact(strings.Split(f.cause.Error(), "\n")) // for example the same error with TLS and without
	return "postgres: " + f.op + ": " + strings.Join(strings.Fields(strings.Join(lines, "; ")), " ")
}

func (f *failure) Unwrap() error { return f.cause }

func failed(what string, err error) error {
	var connecting *pgconn.ConnectError
	if errors.As(err, &connecting) {
		err = connecting.Unwrap()
		if unknownKey(err, connecting.Config.RuntimeParams) {
			err = errKey
		}
	}
	// A statement was prepared on one connection and executed on another.
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) && (pgErr.Code == "42P05" || pgErr.Code == "26000") {
		what += " (for PgBouncer in transaction mode set Options.Poll)"
	}
	return &failure{what, err}
}

// unknownKey reports whether the server or a pooler rejects a key of the DSN and quotes
// it. pgx sends unknown keys to the server. Such a key may be the rest of a password
// that was not quoted, or a whole URL with an invalid scheme.
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

// checkHosts rejects hosts with an @. If a password has an unescaped @, pgx treats the
// rest of it as part of the host and would quote it in errors.
func checkHosts(c *pgconn.Config) error {
	hosts := []string{c.Host}
	for _, f := range c.Fallbacks {
		hosts = append(hosts, f.Host)
	}
	for _, host := range hosts {
		if strings.LastIndexByte(host, '@') > 0 && host[0] != '/' { // a host that begins with / is a Unix socket
			return errDSN
		}
	}
	return nil
}

// dsnError replaces pgx's error, which quotes the DSN and may not remove every password
// from a malformed one.
func dsnError(err error) error {
	var file *fs.PathError // for example of sslrootcert
	if errors.As(err, &file) {
		return &failure{"open a file of the DSN", file}
	}
	return errDSN
}

var (
	errDSN = errors.New("postgres: the DSN, or a setting from the environment (PGPORT, PGSERVICE, ...), is malformed: " +
		"write postgres://user:password@host:port/database?key=value, with special characters percent-encoded, " +
		"or key=value pairs with single quotes around values that contain spaces")
	errKey = errors.New("the server rejects a key of the DSN: it may be misspelled, or part of a value " +
		"that must be percent-encoded or in single quotes")
)

var (
	errClosed   = errors.New("postgres: the Backend was closed")
	errNoState  = errors.New("table chaingql_state has lost its row")
	errReplaced = errors.New("the chain was dropped and created again since Open, or table chaingql_state has lost " +
		"its row: restart every process that serves or writes it")
)
