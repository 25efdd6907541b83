package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"time"
)

// A proxy forwards each HTTP request and each WebSocket to one of the hosts, in turn.
type proxy struct {
	addr   string
	server *http.Server
	wire   *http.Transport
	served chan error
	ctx    context.Context
	cancel context.CancelFunc
}

func newProxy(l net.Listener, hosts []*host, logger *slog.Logger) *proxy {
	var next atomic.Uint64
	p := &proxy{
		addr: l.Addr().String(),
		wire: &http.Transport{
			DialContext: (&net.Dialer{Timeout: 2 * time.Second}).DialContext, MaxIdleConnsPerHost: 64,
		},
		served: make(chan error, 1),
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	quiet := slog.NewLogLogger(logger.Handler(), slog.LevelDebug)
	pass := &httputil.ReverseProxy{
		Transport: p.wire,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: hosts[next.Add(1)%uint64(len(hosts))].addr})
			r.SetXForwarded()
		},
		FlushInterval: -1, // sends each block at once
		// The host is down, so the client should retry.
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusBadGateway)
		},
		ErrorLog: quiet,
	}
	p.server = &http.Server{
		Handler:           pass,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second, // for request bodies; WebSockets and event streams last longer
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: 100, WriteByteTimeout: 10 * time.Second},
		ErrorLog:          quiet,
		BaseContext:       func(net.Listener) context.Context { return p.ctx }, // canceling p.ctx ends WebSockets too
	}
	go func() { p.served <- p.server.Serve(l) }()
	return p
}

func (p *proxy) close() error {
	p.cancel()
	err := p.server.Close()
	p.wire.CloseIdleConnections()
	if served := <-p.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}
