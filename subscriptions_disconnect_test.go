package chaingql_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// After a client has disconnected and ServeHTTP has returned, Shutdown must not use the client's ResponseWriter.
func TestShutdownAtItsDeadlineIsSafeWithHTTP2Streams(t *testing.T) {
	for round := range 4 {
		h, _ := newHandler(t, memchain.New(), chaingql.Options{})
		srv := httptest.NewUnstartedServer(mounted(h))
		srv.EnableHTTP2 = true
		srv.StartTLS()
		const streams = 40
		// One connection serves all streams.
		if _, err := srv.Client().Get(srv.URL + "/demo/graphql?query=%7B__typename%7D"); err != nil {
			t.Fatal(err)
		}
		var open, gone sync.WaitGroup
		open.Add(streams)
		for range streams {
			gone.Go(func() {
				r, err := http.NewRequest("GET", srv.URL+"/demo/graphql?query=subscription%7Bblocks%7Bid%7D%7D", nil)
				if err != nil {
					panic(err)
				}
				r.Header.Set("Accept", "text/event-stream")
				res, err := srv.Client().Do(r)
				open.Done()
				if err == nil && res.ProtoMajor != 2 {
					t.Errorf("the protocol is %s, want HTTP/2", res.Proto)
				}
				if err != nil {
					t.Error(err)
					return
				}
				for s := bufio.NewScanner(res.Body); s.Scan(); {
				}
				_ = res.Body.Close()
			})
		}
		open.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(round%3)*time.Millisecond)
		_ = h.Shutdown(ctx) // may time out
		cancel()
		gone.Wait()
		srv.Close()
	}
}

// A hookedWriter is a ResponseWriter that calls act before the n-th Write.
type hookedWriter struct {
	*httptest.ResponseRecorder
	n   int
	act func()
}

func (w *hookedWriter) Write(p []byte) (int, error) {
	if w.n--; w.n == 0 {
		w.act()
	}
	return w.ResponseRecorder.Write(p)
}

// streamTo serves an event stream of all blocks to w.
func streamTo(ctx context.Context, h *chaingql.Handler, w http.ResponseWriter) {
	r := httptest.NewRequestWithContext(ctx, "GET", `/demo/graphql?query=subscription{blocks(after:""){id}}`, nil)
	r.Header.Set("Accept", "text/event-stream")
	h.ServeHTTP(w, r)
}

func TestHooksReportHowAnEventStreamEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var last chaingql.Outcome
		var started, finished int
		h, _ := newHandler(t, chainOf(t, randomBlocks(71, 30)), chaingql.Options{Hooks: chaingql.Hooks{
			OperationStarted: func(context.Context, chaingql.Operation) context.Context { started++; return nil },
			OperationFinished: func(_ context.Context, _ chaingql.Operation, o chaingql.Outcome) {
				finished, last = finished+1, o
			},
		}})
		for range 20 { // the client disconnects while blocks are sent
			ctx, leave := context.WithCancel(t.Context())
			streamTo(ctx, h, &hookedWriter{httptest.NewRecorder(), 2, func() { leave(); synctest.Wait() }})
			if last.Reason != chaingql.ReasonClient || last.Failed {
				t.Fatalf("for a client that disconnected, the outcome is %+v", last)
			}
		}
		func() {
			defer func() { _ = recover() }()
			streamTo(t.Context(), h, &hookedWriter{httptest.NewRecorder(), 2, func() { panic(http.ErrAbortHandler) }})
		}()
		streamTo(t.Context(), h, struct{ http.ResponseWriter }{httptest.NewRecorder()}) // cannot flush
		if last.Reason != chaingql.ReasonLost || !last.Failed {
			t.Errorf("for a ResponseWriter that cannot flush, the outcome is %+v", last)
		}
		synctest.Wait()
		if started != 22 || finished != started || h.ShareGroups() != 0 || h.EventStreams() != 0 {
			t.Errorf("%d operations started and %d finished; %d evaluations and %d event streams remain",
				started, finished, h.ShareGroups(), h.EventStreams())
		}
	})
}

func TestResumingFromTheCursorOfAConnectionErrorLosesNoBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocks := weave("mabmabmabm" + "abma")
		s := newGappyChain(t, blocks[:10], blocks[10].Cursor)
		s.permanent = true
		stuck := stubBackend{Backend: s,
			blocks: func(ctx context.Context, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
				if q.After == blocks[0].Cursor {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				return s.Blocks(ctx, q)
			}}
		h, _ := newHandler(t, stuck, chaingql.Options{WindowSize: 2})
		c := serve(t, mounted(h)).socket(t)
		c.send(start("1", allBlocks))
		synctest.Wait()
		commit(t, s.Chain, blocks[10:13]...)
		c.receive()
		c.send(start("2", fmt.Sprintf(`subscription{blocks(after:%q){chain_order}}`, blocks[0].Cursor)))
		c.expect("while subscription 2 waits for its first page")
		commit(t, s.Chain, blocks[13])
		time.Sleep(10 * time.Second)
		c.expect("when both end because of the gap in subscription 1", fmt.Sprintf(
			`{"type":"connection_error","id":null,"payload":{"message":"Blocks are missing from the stream.",`+
				`"extensions":{"code":"STREAM_GAP","cursor":%q,`+
				`"operations":[{"id":"1","code":"STREAM_GAP","cursor":%q},`+
				`{"id":"2","code":"SERVICE_UNAVAILABLE","cursor":%q}]}}}`,
			blocks[0].Cursor, blocks[9].Cursor, blocks[0].Cursor), "CLOSE 1001")
	})
}

// A slowAuthorizer blocks until its context is done if the client sent a secret. It refuses all other clients.
type slowAuthorizer struct{ returned chan struct{} }

func (g slowAuthorizer) Authorize(ctx context.Context, c chaingql.Credentials) (context.Context, error) {
	if !c.HasSecret {
		return nil, chaingql.ErrUnauthorized
	}
	<-ctx.Done()
	close(g.returned)
	return nil, ctx.Err()
}

func TestAuthorizerIsCanceledWhenItsSocketIsGone(t *testing.T) {
	for _, leaves := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			g := slowAuthorizer{make(chan struct{})}
			h, _ := newHandler(t, memchain.New(), chaingql.Options{Authorizer: g})
			s := serve(t, mounted(h)).socket(t)
			s.send(`{"type":"connection_init","payload":{"accessKey":"x"}}`)
			synctest.Wait()
			begun, most := time.Now(), 2*time.Second
			if leaves {
				most = 3 * chaingql.DefaultKeepAliveInterval // until missing pongs are noticed
				_ = s.CloseNow()
			} else {
				ctx, cancel := context.WithTimeout(t.Context(), most)
				defer cancel()
				_ = h.Shutdown(ctx)
			}
			<-g.returned
			if took := time.Since(begun); took > most {
				t.Errorf("the Authorizer's context was canceled after %v, want at most %v", took, most)
			}
		})
	}
}

func TestErrBadCursorForAnOwnCursorIsNotAClientError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocks := weave("mmmmmm")
		chain := chainOf(t, blocks[:2])
		foreign := make(chan struct{})
		h, _ := newHandler(t, stubBackend{Backend: chain,
			blocks: func(ctx context.Context, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
				select {
				case <-foreign:
					if q.After != "" {
						return nil, chaingql.ErrBadCursor
					}
				default:
				}
				return chain.Blocks(ctx, q)
			}}, chaingql.Options{WindowSize: 1})
		c := serve(t, mounted(h)).socket(t)
		c.send(start("1", fmt.Sprintf(`subscription{blocks(after:%q){chain_order}}`, blocks[0].Cursor)))
		c.expect("stored", blockFrames("1", blocks[1])...)
		close(foreign)
		commit(t, chain, blocks[2:]...)
		got := strings.Join(c.receive(), "\n")
		for range 3 {
			time.Sleep(time.Second)
			got += strings.Join(c.receive(), "\n")
		}
		if strings.Contains(got, "Invalid cursor") {
			t.Errorf("the subscription ended with a client error: %s", got)
		}
	})
}
