package postgres

import (
	"errors"
	"io/fs"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// A failure is an error in one line. Its cause is pgx's, less the connection
// settings that pgx's errors carry: they have the password.
type failure struct {
	what  string
	cause error
}

func (f *failure) Error() string {
	lines := slices.Compact(strings.Split(f.cause.Error(), "\n")) // with TLS and without, say
	return "postgres: " + f.what + ": " + strings.Join(strings.Fields(strings.Join(lines, "; ")), " ")
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
	// Prepared on one connection, asked for on another.
	var told *pgconn.PgError
	if errors.As(err, &told) && (told.Code == "42P05" || told.Code == "26000") {
		what += " (behind PgBouncer in transaction mode set Options.Poll)"
	}
	return &failure{what, err}
}

// unknownKey tells whether the server, or a pooler, refuses a key of the DSN and
// quotes it. What pgx does not know it sends to the server, and that may be the
// rest of a password that was not quoted, or all of a URL whose scheme is none.
func unknownKey(err error, keys map[string]string) bool {
	text := err.Error() // of all addresses that were tried
	refused := slices.ContainsFunc([]string{"42704", "42602", "08P01"}, func(code string) bool { return strings.Contains(text, "(SQLSTATE "+code+")") })
	for key := range keys {
		if refused && strings.Contains(text, key) {
			return true
		}
	}
	return false
}

// checkHosts refuses the rest of a password that has an @, which pgx takes for a
// part of the host, and would quote.
func checkHosts(c *pgconn.Config) error {
	hosts := []string{c.Host}
	for _, f := range c.Fallbacks {
		hosts = append(hosts, f.Host)
	}
	for _, host := range hosts {
		if strings.LastIndexByte(host, '@') > 0 && host[0] != '/' { // else it is a Unix socket's
			return errDSN
		}
	}
	return nil
}

// malformed stands in for pgx's error, which quotes the string and is not sure to
// find every password in one that is malformed.
func malformed(err error) error {
	var file *fs.PathError // sslrootcert's, say
	if errors.As(err, &file) {
		return &failure{"a file that the DSN names cannot be used", file}
	}
	return errDSN
}

var (
	errDSN = errors.New("postgres: the DSN is malformed, or what it leaves to the environment (PGPORT, PGSERVICE, ...): " +
		"write postgres://user:password@host:port/database?key=value, with special characters percent-encoded, " +
		"or key=value pairs with single quotes around values that have spaces")
	errKey = errors.New("the DSN has a key that the server does not take, such as one that is misspelled, or a part of a value " +
		"that should be percent-encoded or in single quotes")
)

var (
	errClosed   = errors.New("postgres: the Backend was closed")
	errNoState  = errors.New("table chaingql_state has lost its row")
	errReplaced = errors.New("the chain was dropped and made again since Open, or table chaingql_state has lost its row: " +
		"restart every process that serves or writes it")
)
