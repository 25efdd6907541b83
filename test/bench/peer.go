package main

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/chaingql/chaingql"

	"github.com/chaingql/chaingql/test/bench/byhand"
	"github.com/chaingql/chaingql/test/bench/gophers"
	"github.com/chaingql/chaingql/test/bench/gqlgen"
	"github.com/chaingql/chaingql/test/bench/graphqlgo"
	"github.com/chaingql/chaingql/test/bench/source"
)

// The names of those that are measured.
const (
	own       = "chaingql"
	gqlgenGo  = "gqlgen"
	gophersGo = "graph-gophers"
	graphqlGo = "graphql-go"
	handmade  = "by hand"
	constant  = "constant"
	mercurius = "mercurius"
	yoga      = "yoga"
)

// open makes the handler of a peer written in Go. options are chaingql's alone,
// and may be nil.
func open(peer string, s *source.Source, options *chaingql.Options) (http.Handler, error) {
	switch peer {
	case own:
		return awake(s, settings(options))
	case gqlgenGo:
		return gqlgen.New(s), nil
	case gophersGo:
		return gophers.New(s, sdl)
	case graphqlGo:
		return graphqlgo.New(s)
	case handmade:
		return byhand.New(s, pages), nil
	case constant:
		body, err := answerOf(byhand.New(s, pages), queries[0].body)
		return byhand.Constant(body), err
	}
	return nil, fmt.Errorf("no peer is called %q", peer)
}

// awake returns chaingql's handler when it has heard of a new block, as it has on
// any chain that goes on: from then on it answers from the window of recent
// blocks. The chain grows by a few blocks.
func awake(s *source.Source, options *chaingql.Options) (http.Handler, error) {
	heard := make(chan struct{})
	var once sync.Once
	options.Hooks.BlockReceived = func(chaingql.Block, time.Duration) { once.Do(func() { close(heard) }) }
	h := chaingql.New(s, options)
	if _, err := answerOf(h, queries[1].body); err != nil { // it begins to follow the chain
		return nil, err
	}
	for {
		if err := s.Grow(); err != nil {
			return nil, err
		}
		select {
		case <-heard:
			return h, nil
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// settings are the defaults, but for what would get in the way here: the chain
// stands still while queries are measured, and more clients come than 10,000.
func settings(options *chaingql.Options) *chaingql.Options {
	var o chaingql.Options
	if options != nil {
		o = *options
	}
	o.Silence = -1
	o.Limits.Sockets = -1
	o.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	return &o
}
