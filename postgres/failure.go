package postgres

import (
	"errors"
	"io/fs"
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
	return "postgres: " + f.what + ": " + strings.Join(strings.Fields(f.cause.Error()), " ")
}

func (f *failure) Unwrap() error { return f.cause }

func failed(what string, err error) error {
	var connecting *pgconn.ConnectError
	if errors.As(err, &connecting) {
		err = connecting.Unwrap()
	}
	// Prepared on one connection, asked for on another.
	var told *pgconn.PgError
	if errors.As(err, &told) && (told.Code == "42P05" || told.Code == "26000") {
		what += " (behind PgBouncer in transaction mode set Options.Poll)"
	}
	return &failure{what, err}
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

var errDSN = errors.New("postgres: the DSN is malformed: write postgres://user:password@host:port/database?key=value, " +
	"with special characters percent-encoded, or key=value pairs with single quotes around values that have spaces")

var errClosed = errors.New("postgres: the Backend was closed")
