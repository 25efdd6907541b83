package postgres

import (
	"context"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// lookUp returns the addresses of a name. A program may set net.DefaultResolver at any time.
var lookUp = func(ctx context.Context, name string) ([]string, error) {
	return net.DefaultResolver.LookupHost(ctx, name)
}

// servers returns the servers of a DSN in the order in which pgx tries them. If the DSN allows
// connections with TLS and without, a server occurs twice.
func servers(c *pgconn.Config) []*pgconn.FallbackConfig {
	first := &pgconn.FallbackConfig{Host: c.Host, Port: c.Port, TLSConfig: c.TLSConfig}
	return append([]*pgconn.FallbackConfig{first}, c.Fallbacks...)
}

// severalServers reports whether a DSN names more than one server.
func severalServers(c *pgconn.Config) bool {
	return slices.ContainsFunc(c.Fallbacks, func(f *pgconn.FallbackConfig) bool {
		return f.Host != c.Host || f.Port != c.Port
	})
}

// limitAttempts sets the limit of each attempt to connect to an equal part of timeout, so that
// an address that hangs leaves time for the next one, but at least to two fifths: TLS and the
// password take several round trips, and after a failed attempt with TLS, pgx may connect
// without. A name may have several addresses, so limitAttempts looks up all names, and pgx then
// uses the results.
func limitAttempts(ctx context.Context, c *pgx.ConnConfig, timeout time.Duration) {
	type result struct {
		addresses []string
		err       error
	}
	found := map[string]result{}
	c.LookupFunc = func(ctx context.Context, name string) ([]string, error) {
		r, ok := found[name]
		if !ok {
			r.addresses, r.err = lookUp(ctx, name)
			found[name] = r
		}
		return r.addresses, r.err
	}
	var attempts []string
	for _, s := range servers(&c.Config) {
		addresses := []string{s.Host}
		if network, _ := pgconn.NetworkAddress(s.Host, s.Port); network != "unix" {
			addresses, _ = c.LookupFunc(ctx, s.Host) // pgx reports the error
		}
		for _, address := range addresses {
			attempts = append(attempts, net.JoinHostPort(address, strconv.Itoa(int(s.Port))))
		}
	}
	// Consecutive attempts to connect to one address, with TLS and without, have one limit together.
	limit := timeout / time.Duration(max(len(slices.Compact(attempts)), 1))
	limit = max(limit, timeout*2/5) // two addresses may hang
	if c.ConnectTimeout <= 0 || c.ConnectTimeout > limit {
		c.ConnectTimeout = limit
	}
}
