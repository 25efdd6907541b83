package chaingql_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/internal/testkit"
	"github.com/chaingql/chaingql/memchain"
)

// An errorLine is a log line of level ERROR.
type errorLine struct {
	ID, Error            string
	Failures, Suppressed int
}

// A brokenHandler is a Handler with a failing Balance, and its log.
type brokenHandler struct {
	*chaingql.Handler
	t   *testing.T
	log *testkit.Buffer
}

func newBrokenHandler(t *testing.T, fail func(a chaingql.Address) error) brokenHandler {
	b := brokenHandler{t: t, log: &testkit.Buffer{}}
	b.Handler, _ = newHandler(t, stubBackend{Backend: memchain.New(),
		balance: func(_ context.Context, a chaingql.Address) (*big.Int, error) { return nil, fail(a) },
	}, chaingql.Options{Logger: slog.New(slog.NewJSONHandler(b.log, &slog.HandlerOptions{Level: slog.LevelError}))})
	return b
}

// balances requests n balances of different accounts, beginning with the account from, and returns the ids in the
// response.
func (b brokenHandler) balances(from, n int) (ids []string) {
	b.t.Helper()
	var document strings.Builder
	for i := range n {
		fmt.Fprintf(&document, `a%d:account(address:"0:%064x"){info{balance}}`, i, from+i)
	}
	for _, e := range parse(b.t, query(b, "{blockchain{"+document.String()+"}}", nil)).Errors {
		id, _ := e.Extensions["id"].(string)
		ids = append(ids, id)
	}
	equal(b.t, "errors", len(ids), n)
	return ids
}

// lines returns the lines of the log, by id.
func (b brokenHandler) lines() map[string]errorLine {
	b.t.Helper()
	all := map[string]errorLine{}
	for text := range strings.Lines(b.log.String()) {
		var line errorLine
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			b.t.Fatal(err)
		}
		all[line.ID] = line
	}
	return all
}

func (b brokenHandler) expectLogged(ids ...string) {
	b.t.Helper()
	lines := b.lines()
	for _, id := range ids {
		if _, ok := lines[id]; !ok {
			b.t.Errorf("no log line has the id %q, which a client received", id)
		}
	}
}

func TestFailingFieldsOfARequestAreLoggedInOneLine(t *testing.T) {
	b := newBrokenHandler(t, func(a chaingql.Address) error { return fmt.Errorf("no connection for %v", a) })
	ids := b.balances(0, 50)
	b.expectLogged(ids...)
	lines := b.lines()
	equal(t, "log lines", len(lines), 1)
	if line := lines[ids[0]]; line.Failures != 50 || !strings.Contains(line.Error, "no connection for 0:00") {
		t.Errorf("the line is %+v, want the first error and 50 failures", line)
	}
}

func TestDifferentErrorsOfARequestAreAllLogged(t *testing.T) {
	kinds := []string{"refused", "reset", "denied"}
	i := 0
	b := newBrokenHandler(t, func(chaingql.Address) error { i++; return errors.New(kinds[i%3]) })
	b.expectLogged(b.balances(0, 30)...)
	text := b.log.String()
	for _, kind := range kinds {
		if strings.Count(text, `"error":"`+kind+`","failures":10`) != 1 {
			t.Errorf("the log lacks the error %q with 10 failures: %s", kind, text)
		}
	}
}

func TestLogLinesForTheErrorsOfARequestAreLimited(t *testing.T) {
	letters := 'a'
	b := newBrokenHandler(t, func(chaingql.Address) error { letters++; return errors.New(string(letters)) })
	b.expectLogged(b.balances(0, 20)...)
	lines, failures := b.lines(), 0
	for _, line := range lines {
		failures += line.Failures
	}
	equal(t, "log lines", len(lines), 8)
	equal(t, "failures", failures, 20)
}

// The database is down for one second, in which 500 requests fail.
func TestEqualFailuresOfManyRequestsAreLoggedInAFewLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBrokenHandler(t, func(a chaingql.Address) error { return fmt.Errorf("no connection for %v", a) })
		var ids []string
		requests := 500
		if raceEnabled {
			requests = 100
		}
		for i := range requests {
			ids = append(ids, b.balances(i, 50)...)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		b.expectLogged(ids...)
		lines, failures, suppressed := b.lines(), 0, 0
		for _, line := range lines {
			failures += line.Failures
			suppressed += line.Suppressed
		}
		equal(t, "log lines", len(lines), 4)
		equal(t, "failures", failures, 50*requests)
		equal(t, "suppressed lines", suppressed, requests-3)

		b.expectLogged(b.balances(0, 1)...) // a second later, an error has its own line again
		equal(t, "log lines", len(b.lines()), 5)
	})
}

// A Backend whose errors all differ must not fill the log either.
func TestLogLinesForManyDifferentErrorsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		b := newBrokenHandler(t, func(chaingql.Address) error {
			n++
			// Words with digits do not distinguish errors.
			return errors.New(strings.Map(func(r rune) rune { return r - '0' + 'a' }, strconv.Itoa(n)))
		})
		var ids []string
		for range 100 {
			ids = append(ids, b.balances(0, 50)...)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		b.expectLogged(ids...)
		if lines := len(b.lines()); lines > 17*4 {
			t.Errorf("5,000 different errors within a second wrote %d lines, want at most 68", lines)
		}
	})
}

func TestShutdownWritesTheSuppressedFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBrokenHandler(t, func(chaingql.Address) error { return errors.New("down") })
		var ids []string
		for range 10 {
			ids = append(ids, b.balances(0, 1)...)
		}
		if err := b.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.expectLogged(ids...)
	})
}
