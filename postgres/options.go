package postgres

import (
	"errors"
	"strings"
	"time"
	"unicode/utf8"
)

// These are the default values of [Options].
const (
	DefaultSchema          = "chaingql"
	DefaultTimeout         = 5 * time.Second
	DefaultWriteTimeout    = time.Minute
	DefaultRecheckInterval = time.Second
)

// Options configures a Backend. The zero value is safe in production.
type Options struct {
	// Schema is the name of the PostgreSQL schema with the tables. It is case-sensitive
	// and may have any characters, but must not be $user, which PostgreSQL replaces with
	// the name of the role. Several chains can share a database if each has its own
	// schema. The schema may have other tables, but none named blocks, accounts or
	// chaingql_state. Default: DefaultSchema.
	Schema string

	// SkipMigrations makes Open fail if the tables are missing or of an older version. If it
	// is false, Open creates or alters such tables, and the role needs permission to do so.
	// If the tables are up to date, a role that can only read is sufficient.
	SkipMigrations bool

	// PollInterval is the interval at which Follow reads new blocks instead of using
	// LISTEN. If it is positive, the Backend does not use prepared statements either:
	// PgBouncer in transaction mode requires both. If it is zero, Follow uses LISTEN,
	// except on a read-only replica, which does not support LISTEN: there Follow polls ten
	// times per second, also if the server has become a replica since Open.
	PollInterval time.Duration

	// RecheckInterval is the interval at which Follow reads new blocks even if no
	// notification has arrived, in case a program stored blocks without a NOTIFY. It has no
	// effect if Follow polls. If it is zero or negative, DefaultRecheckInterval is used.
	RecheckInterval time.Duration

	// Timeout limits each read and each attempt to connect. If the servers of the DSN have
	// several addresses, Timeout is divided among them, but each has at least two fifths.
	// Looking up their names takes additional time. If Timeout is zero or negative,
	// DefaultTimeout is used.
	Timeout time.Duration

	// WriteTimeout limits each transaction of a [Writer], including its wait for other
	// Writers, and the migrations of Open. If it is zero or negative,
	// DefaultWriteTimeout is used.
	WriteTimeout time.Duration
}

// replicaPoll is the polling interval on a read-only replica if PollInterval is not set.
const replicaPoll = 100 * time.Millisecond

func (o *Options) withDefaults() (Options, error) {
	var in Options
	if o != nil {
		in = *o
	}
	if in.Schema == "" {
		in.Schema = DefaultSchema
	}
	// PostgreSQL truncates longer names, so two different names could mean the same schema.
	if len(in.Schema) > 63 || strings.Contains(in.Schema, "\x00") || !utf8.ValidString(in.Schema) {
		return in, errors.New("postgres: invalid Options.Schema: the name has more than 63 bytes or invalid characters")
	}
	if in.Schema == "$user" {
		return in, errors.New("postgres: Options.Schema must not be $user: PostgreSQL replaces it with the role's name")
	}
	for _, d := range []struct {
		set *time.Duration
		def time.Duration
	}{{&in.RecheckInterval, DefaultRecheckInterval}, {&in.Timeout, DefaultTimeout},
		{&in.WriteTimeout, DefaultWriteTimeout}} {
		if *d.set <= 0 {
			*d.set = d.def
		}
	}
	in.PollInterval = max(in.PollInterval, 0)
	return in, nil
}
