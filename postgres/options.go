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

// Options say how a chain is kept. The zero value is safe in production.
type Options struct {
	// Schema is the PostgreSQL schema that the tables live in, as it is
	// written: case counts and every character may be in it, but it must
	// not be $user, which PostgreSQL takes for the role's name. Chains with
	// schemas of their own share a database without knowing of each other; a
	// schema with other tables in it serves as long as none is called blocks,
	// accounts or chaingql_state. Default: DefaultSchema.
	Schema string

	// SkipMigrations leaves the tables as they are: Open fails where they are
	// missing or older than this package. Without it Open makes or alters them,
	// for which its role must be allowed to; where nothing is to be done a role
	// that may only read will do.
	SkipMigrations bool

	// Poll, where it is positive, makes Follow look for new blocks this often
	// and do without LISTEN, and every call without prepared statements: for
	// PgBouncer in transaction mode. Zero listens, except on a read-only
	// replica, which cannot: there new blocks are looked for ten times a second.
	Poll time.Duration

	// Look is how often a Follow that listens looks for new blocks though it
	// was told of none, for those that came without a NOTIFY. Default, also
	// where it is negative: DefaultLook.
	Look time.Duration

	// Timeout is the deadline of each read, and of each attempt to connect.
	// Default, also where it is negative: DefaultTimeout.
	Timeout time.Duration

	// WriteTimeout is the deadline of each transaction of a [Writer], its wait
	// for other writers included, and of migrations. Default, also where it is
	// negative: DefaultWriteTimeout.
	WriteTimeout time.Duration
}

// replicaPoll is the rhythm where LISTEN is impossible and Poll is not set.
const replicaPoll = 100 * time.Millisecond

func (o *Options) withDefaults() (Options, error) {
	var in Options
	if o != nil {
		in = *o
	}
	if in.Schema == "" {
		in.Schema = DefaultSchema
	}
	// A longer name would be cut off by PostgreSQL, and might be another's then.
	if len(in.Schema) > 63 || strings.Contains(in.Schema, "\x00") || !utf8.ValidString(in.Schema) {
		return in, errors.New("postgres: Options.Schema is no name of a schema: it has more than 63 bytes, or characters that are none")
	}
	if in.Schema == "$user" {
		return in, errors.New("postgres: Options.Schema cannot be $user: PostgreSQL takes it for the schema named like the role")
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
