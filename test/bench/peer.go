package main

import (
	"context"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"

	"github.com/chaingql/chaingql/test/bench/byhand"
	"github.com/chaingql/chaingql/test/bench/gophers"
	"github.com/chaingql/chaingql/test/bench/gqlgen"
	"github.com/chaingql/chaingql/test/bench/graphqlgo"
	"github.com/chaingql/chaingql/test/bench/source"
)

// These are the names of chaingql and its peers.
const (
	own       = "chaingql"
	gqlgenGo  = "gqlgen"
	gophersGo = "graph-gophers"
	graphqlGo = "graphql-go"
	handmade  = "by hand"
	constant  = "constant"
	mercurius = "mercurius"
	yoga      = "yoga"

	// blocking is chaingql with connections of a type that it does not know, so that each has a goroutine that reads.
	blocking = "a goroutine per connection"
)

// open returns the handler of a peer that is written in Go. If stored is true, the handlers of chaingql and
// of the handwritten peer read all pages from the Backend. The options are used only for chaingql and may
// be nil.
func open(peer string, s *source.Source, stored bool, options *chaingql.Options) (http.Handler, error) {
	switch peer {
	case own, blocking:
		if stored {
			return chaingql.New(quiet{s.Chain}, settings(options)), nil
		}
		return openLive(s, settings(options))
	case gqlgenGo:
		return gqlgen.New(s), nil
	case gophersGo:
		return gophers.New(s)
	case graphqlGo:
		return graphqlgo.New(s)
	case handmade:
		return byhand.New(s, known, stored), nil
	}
	for _, q := range queries {
		if peer == constantFor(q) {
			body, err := respond(byhand.New(s, known, q.stored), q.body)
			return byhand.Constant(body), err
		}
	}
	return nil, fmt.Errorf("unknown peer %q", peer)
}

// constantFor returns the name of the peer that sends the constant response to q.
func constantFor(q query) string { return constant + ": " + q.name }

// quiet is a chain without new blocks.
type quiet struct{ *memchain.Chain }

func (quiet) Follow(ctx context.Context, _ chaingql.Cursor) iter.Seq2[chaingql.Block, error] {
	return func(yield func(chaingql.Block, error) bool) {
		<-ctx.Done()
		yield(chaingql.Block{}, ctx.Err())
	}
}

// openLive returns a handler of chaingql that has received a new block, as on any live chain, and
// therefore serves recent blocks from its window. It appends a few blocks to the chain.
func openLive(s *source.Source, options *chaingql.Options) (http.Handler, error) {
	received := make(chan struct{})
	var once sync.Once
	options.Hooks.BlockReceived = func(chaingql.Block, time.Duration) { once.Do(func() { close(received) }) }
	h := chaingql.New(s, options)
	if _, err := respond(h, queries[1].body); err != nil { // the first query starts Follow
		return nil, err
	}
	for {
		if err := s.Grow(); err != nil {
			return nil, err
		}
		select {
		case <-received:
			return h, nil
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// settings returns a copy of options in which three defaults that would disturb measurements are turned
// off: StallTimeout, because the chain does not grow during queries, the limit on connections, because
// more than 10,000 clients connect, and the limit on the messages of a socket.
func settings(options *chaingql.Options) *chaingql.Options {
	var o chaingql.Options
	if options != nil {
		o = *options
	}
	o.StallTimeout = -1
	o.Limits.Connections = -1
	o.Limits.MessageRate = -1
	o.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	return &o
}
