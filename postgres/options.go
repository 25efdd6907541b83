package postgres

import (
	"errors"
	"strings"
	"time"
	"unicode/utf8"
)

// Defaults of [Options].
const (
	DefaultSchema       = "chaingql"
	DefaultTimeout      = 5 * time.Second
	DefaultWriteTimeout = time.Minute
	DefaultLook         = time.Second
)

// Options configures a Backend. The zero value is safe in production.
type Options struct {
	// Schema is the name of the PostgreSQL schema with the tables. It is case-sensitive
	// and may have any characters, but must not be $user, which PostgreSQL replaces by
	// the name of the role. Several chains can share a database if each has its own
	// schema. The schema may have other tables, except for tables named blocks, accounts
	// or chaingql_state. Default: DefaultSchema.
	Schema string

	// SkipMigrations makes Open fail if the tables are missing or older than this
	// package. If it is false, Open creates or alters them, for which the role needs
	// permission. If no migration is due, a role that can only read is sufficient.
	SkipMigrations bool

	// Poll is the interval at which Follow reads new blocks instead of using LISTEN. If
	// it is positive, no call uses prepared statements either, as PgBouncer requires in
	// transaction mode. If it is zero, Follow uses LISTEN, except on a read-only replica,
	// which does not support it: there it polls ten times a second.
	Poll time.Duration

	// Look is the interval at which a Follow that uses LISTEN also reads new blocks
	// without a notification, in case they were stored without a NOTIFY. Default, also
	// if it is negative: DefaultLook.
	Look time.Duration

	// Timeout limits each read and each attempt to connect. If the DSN has several hosts, the
	// attempt at each of them has an equal part of it. Default, also if it is negative:
	// DefaultTimeout.
	Timeout time.Duration

	// WriteTimeout limits each transaction of a [Writer], including its wait for other
	// writers, and migrations. Default, also if it is negative: DefaultWriteTimeout.
	WriteTimeout time.Duration
}

// replicaPoll is the polling interval if LISTEN is impossible and Poll is not set.
const replicaPoll = 100 * time.Millisecond

func (o *Options) withDefaults() (Options, error) {
	var in Options
	if o != nil {
		in = *o
	}
	if in.Schema == "" {
		in.Schema = DefaultSchema
	}
	// PostgreSQL truncates longer names, so two schemas could become one.
	if len(in.Schema) > 63 || strings.Contains(in.Schema, "\x00") || !utf8.ValidString(in.Schema) {
		return in, errors.New("postgres: invalid Options.Schema: it has more than 63 bytes or contains invalid characters")
	}
	if in.Schema == "$user" {
		return in, errors.New("postgres: Options.Schema must not be $user: PostgreSQL replaces it by the role's name")
	}
	for _, d := range []struct {
		set *time.Duration
		def time.Duration
	}{{&in.Look, DefaultLook}, {&in.Timeout, DefaultTimeout}, {&in.WriteTimeout, DefaultWriteTimeout}} {
		if *d.set <= 0 {
			*d.set = d.def
		}
	}
	in.Poll = max(in.Poll, 0)
	return in, nil
}
