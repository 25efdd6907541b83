package chaingql_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/internal/testkit"
	"github.com/chaingql/chaingql/memchain"
)

var idShown = regexp.MustCompile(`"extensions":\{"code":"INTERNAL_SERVER_ERROR","id":"([0-9a-f]{16})"\}`)

// masked checks that a response contains only an error id, and that the log line with this id contains the texts in
// rest.
func masked(t *testing.T, response string, log *testkit.Buffer, rest ...string) {
	t.Helper()
	shown := idShown.FindStringSubmatch(response)
	if shown == nil || !strings.Contains(response, `"message":"Internal server error"`) {
		t.Fatalf("the response is not masked: %s", response)
	}
	if strings.Contains(response, "s3cret") {
		t.Errorf("the response contains the internal error: %s", response)
	}
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, "id="+shown[1]) {
			for _, what := range rest {
				if !strings.Contains(line, what) {
					t.Errorf("the log line lacks %q: %s", what, line)
				}
			}
			return
		}
	}
	t.Errorf("the log lacks id %s: %s", shown[1], log)
}

func TestBalanceFailureIsMaskedAndLogged(t *testing.T) {
	for _, c := range []struct {
		what    string
		balance func(context.Context, chaingql.Address) (*big.Int, error)
		log     string
	}{
		{"error", func(context.Context, chaingql.Address) (*big.Int, error) {
			return nil, errors.New("s3cret host is down")
		}, "s3cret host is down"},
		{"wrapped error", func(context.Context, chaingql.Address) (*big.Int, error) {
			return nil, fmt.Errorf("s3cret: %w", context.Canceled)
		}, "s3cret: context canceled"},
		{"panic", func(context.Context, chaingql.Address) (*big.Int, error) { panic("s3cret state") }, "s3cret state"},
		{"panic with its stack", func(context.Context, chaingql.Address) (*big.Int, error) {
			panic("s3cret state")
		}, "backend_errors_test.go"},
		{"neither balance nor error", func(context.Context, chaingql.Address) (*big.Int, error) {
			return nil, nil
		}, "neither"},
		{"negative balance", func(context.Context, chaingql.Address) (*big.Int, error) {
			return big.NewInt(-5), nil
		}, "-5"},
	} {
		t.Run(c.what, func(t *testing.T) {
			h, log := newHandler(t, stubBackend{Backend: memchain.New(), balance: c.balance}, chaingql.Options{})
			w := post(h, askBalance)
			equal(t, "status", w.Code, 200)
			masked(t, w.Body.String(), log, c.log)
			const want = `{"data":{"blockchain":{"account":{"info":{"balance":null}}}},"errors":[{`
			if !strings.HasPrefix(w.Body.String(), want) {
				t.Errorf("the body is %s, want the prefix %s", w.Body, want)
			}
		})
	}
}

func TestPageFailureIsMaskedAndLogged(t *testing.T) {
	for what, blocks := range map[string]func(context.Context, chaingql.BlocksQuery) ([]chaingql.Block, error){
		"error": func(context.Context, chaingql.BlocksQuery) ([]chaingql.Block, error) {
			return nil, errors.New("s3cret")
		},
		"panic": func(context.Context, chaingql.BlocksQuery) ([]chaingql.Block, error) { panic("s3cret") },
		"error while asking for the oldest": func(_ context.Context, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
			if q.First == 1 && q.After == "" {
				return nil, errors.New("s3cret")
			}
			return nil, chaingql.ErrCursorTooOld
		},
	} {
		h, log := newHandler(t, stubBackend{Backend: memchain.New(), blocks: blocks}, chaingql.Options{})
		t.Run(what, func(t *testing.T) {
			masked(t, post(h, askBlocks).Body.String(), log, "s3cret")
		})
	}
}

var failingAuthorizers = map[string]authorizer{
	"error": func(context.Context, chaingql.Credentials) (context.Context, error) {
		return nil, errors.New("s3cret")
	},
	"panic":   func(context.Context, chaingql.Credentials) (context.Context, error) { panic("s3cret") },
	"nothing": func(context.Context, chaingql.Credentials) (context.Context, error) { return nil, nil },
}

func TestAuthorizerFailureIsMaskedAndLogged(t *testing.T) {
	for what, authorize := range failingAuthorizers {
		t.Run(what, func(t *testing.T) {
			h, log := newHandler(t, referenceChain(t), chaingql.Options{Authorizer: authorize})
			for range 2 { // the Handler still works after a panic
				w := post(h, request802)
				equal(t, "status", w.Code, 500)
				equal(t, "content type", w.Header().Get("Content-Type"), jsonType)
				masked(t, w.Body.String(), log)
			}
		})
	}
}

type authorizer func(context.Context, chaingql.Credentials) (context.Context, error)

func (a authorizer) Authorize(ctx context.Context, c chaingql.Credentials) (context.Context, error) {
	return a(ctx, c)
}

func TestErrAbortHandlerPanicIsPassedToNetHTTP(t *testing.T) {
	abort := authorizer(func(context.Context, chaingql.Credentials) (context.Context, error) {
		panic(http.ErrAbortHandler)
	})
	h, log := newHandler(t, memchain.New(), chaingql.Options{Authorizer: abort})
	defer func() {
		if p := recover(); p != http.ErrAbortHandler {
			t.Errorf("ServeHTTP panicked with %v, want http.ErrAbortHandler; the log is %s", p, log)
		}
	}()
	post(h, request802)
}

func TestBlockingBackendTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := func(ctx context.Context) error { <-ctx.Done(); return fmt.Errorf("s3cret: %w", ctx.Err()) }
		h, log := newHandler(t, stubBackend{Backend: memchain.New(),
			balance: func(ctx context.Context, _ chaingql.Address) (*big.Int, error) { return nil, hang(ctx) },
			blocks: func(ctx context.Context, _ chaingql.BlocksQuery) ([]chaingql.Block, error) {
				return nil, hang(ctx)
			},
		}, chaingql.Options{})
		for _, body := range []string{askBalance, askBlocks, `{"query":"{info{version}}"}`} {
			start := time.Now()
			w := post(h, body)
			r := parse(t, w.Body.String())
			equal(t, "time", time.Since(start), 5*time.Second)
			equal(t, "code", r.code(), "TIMEOUT")
			equal(t, "message", r.Errors[0].Message, "The backend did not respond in time.")
		}
		if strings.Contains(log.String(), "internal error") {
			t.Errorf("a timeout was logged as an internal error: %s", log)
		}
	})
}

func TestCanceledRequestIsNotAnInternalError(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	backend := stubBackend{Backend: memchain.New(),
		balance: func(ctx context.Context, _ chaingql.Address) (*big.Int, error) {
			cancel()
			<-ctx.Done()
			return nil, ctx.Err()
		}}
	authorize := authorizer(func(context.Context, chaingql.Credentials) (context.Context, error) { return ctx, nil })
	h, log := newHandler(t, backend, chaingql.Options{Authorizer: authorize})
	equal(t, "code", parse(t, post(h, askBalance).Body.String()).code(), "TIMEOUT")
	if strings.Contains(log.String(), "internal error") {
		t.Errorf("a cancellation was logged as an internal error: %s", log)
	}
}

func TestNewPanicsOnNilBackend(t *testing.T) {
	defer func() {
		if p := recover(); p != "chaingql: New: Backend is nil" {
			t.Errorf("New(nil, nil) panicked with %v", p)
		}
	}()
	chaingql.New(nil, nil)
}

func TestMissingAuthorizerIsLoggedOnce(t *testing.T) {
	h, log := newHandler(t, referenceChain(t), chaingql.Options{})
	for range 3 {
		equal(t, "status", post(h, request802).Code, 200)
	}
	equal(t, "warnings", strings.Count(log.String(), "no Authorizer"), 1)
	_, log = newHandler(t, referenceChain(t), chaingql.Options{Authorizer: chaingql.StaticProjects{}})
	equal(t, "log with an Authorizer", log.String(), "")
}

func TestNewAcceptsNilOptions(t *testing.T) {
	old := slog.Default()
	slog.SetDefault(slog.New(slog.DiscardHandler))
	defer slog.SetDefault(old)
	h := chaingql.New(referenceChain(t), nil)
	equal(t, "body", post(h, request802).Body.String(), response802)
	if err := h.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
}

// A panickingLogHandler panics in Enabled if asked is true, and otherwise in Handle.
type panickingLogHandler struct{ asked bool }

func (n panickingLogHandler) Enabled(context.Context, slog.Level) bool {
	if n.asked {
		panic("Enabled")
	}
	return true
}
func (panickingLogHandler) Handle(context.Context, slog.Record) error { panic("Handle") }
func (n panickingLogHandler) WithAttrs([]slog.Attr) slog.Handler      { return n }
func (n panickingLogHandler) WithGroup(string) slog.Handler           { return n }

func TestPanickingLoggerDoesNotAffectResponses(t *testing.T) {
	for _, asked := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			h, _ := newHandler(t, stubBackend{Backend: memchain.New(),
				balance: func(context.Context, chaingql.Address) (*big.Int, error) {
					return nil, errors.New("down")
				}}, chaingql.Options{Logger: slog.New(panickingLogHandler{asked}).With("a", 1).WithGroup("g")})
			n := serve(t, h)
			for transport, ask := range allTransports {
				const document = `{blockchain{account(address:"0:%064x"){info{balance}}}}`
				if r := parse(t, ask(t, n, fmt.Sprintf(document, 1), nil)); r.code() != "INTERNAL_SERVER_ERROR" {
					t.Errorf("%s: got %+v, want INTERNAL_SERVER_ERROR", transport, r)
				}
			}
		})
	}
}
