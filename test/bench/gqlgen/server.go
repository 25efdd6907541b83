package gqlgen

import (
	"net/http"
	"time"

	"github.com/99designs/gqlgen/graphql/handler"
	"github.com/99designs/gqlgen/graphql/handler/extension"
	"github.com/99designs/gqlgen/graphql/handler/lru"
	"github.com/99designs/gqlgen/graphql/handler/transport"
	"github.com/vektah/gqlparser/v2/ast"

	"github.com/chaingql/chaingql/test/bench/source"
)

// New returns a handler that serves the chain of s. It has the settings of gqlgen's NewDefaultServer,
// including a cache for 1,000 documents, but not the transport for multipart forms.
func New(s *source.Source) http.Handler {
	srv := handler.New(NewExecutableSchema(Config{Resolvers: &root{s, source.NewFeed(s, live)}}))
	srv.AddTransport(transport.Websocket{KeepAlivePingInterval: 10 * time.Second})
	srv.AddTransport(transport.Options{})
	srv.AddTransport(transport.GET{})
	srv.AddTransport(transport.POST{})
	srv.SetQueryCache(lru.New[*ast.QueryDocument](1000))
	srv.Use(extension.Introspection{})
	srv.Use(extension.AutomaticPersistedQuery{Cache: lru.New[string](100)})
	return srv
}
