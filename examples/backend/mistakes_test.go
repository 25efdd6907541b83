package backend_test

import (
	"context"
	"errors"
	"iter"
	"math/big"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/examples/backend"
)

// mistakeVariable is the environment variable that contains the name of a mistake. The backend under test then makes
// this mistake.
const mistakeVariable = "CHAINGQL_TEST_MISTAKE"

// mistake returns f or, if mistakeVariable is set, a Backend that makes the mistake with that name.
func mistake(f *backend.File) chaingql.Backend {
	if name := os.Getenv(mistakeVariable); name != "" {
		return mistakes[name].make(f)
	}
	return f
}

// These are short names for the types in the signatures of a Backend.
type (
	query  = chaingql.BlocksQuery
	blocks = []chaingql.Block
	stream = iter.Seq2[chaingql.Block, error]
)

// mistaken is a File with a mistake. Each function that is not nil replaces the method with the same name.
type mistaken struct {
	*backend.File
	balance func(context.Context, chaingql.Address) (*big.Int, error)
	blocks  func(context.Context, query) (blocks, error)
	follow  func(context.Context, chaingql.Cursor) stream
}

func (m mistaken) Balance(ctx context.Context, a chaingql.Address) (*big.Int, error) {
	if m.balance == nil {
		return m.File.Balance(ctx, a)
	}
	return m.balance(ctx, a)
}

func (m mistaken) Blocks(ctx context.Context, q query) (blocks, error) {
	if m.blocks == nil {
		return m.File.Blocks(ctx, q)
	}
	return m.blocks(ctx, q)
}

func (m mistaken) Follow(ctx context.Context, after chaingql.Cursor) stream {
	if m.follow == nil {
		return m.File.Follow(ctx, after)
	}
	return m.follow(ctx, after)
}

// mistakes maps the mistakes in the table of docs/backend.md to Backends that make them.
var mistakes = map[string]struct {
	rule string // name of the subtest that must detect the mistake
	make func(*backend.File) chaingql.Backend
}{
	"`Balance` returns the same `*big.Int` twice": {
		"Balance_returns_a_value_that_the_caller_owns", func(f *backend.File) chaingql.Backend {
			var known sync.Map
			return mistaken{File: f, balance: func(ctx context.Context, a chaingql.Address) (*big.Int, error) {
				if v, ok := known.Load(a); ok {
					return v.(*big.Int), nil
				}
				v, err := f.Balance(ctx, a)
				if err == nil {
					known.Store(a, v)
				}
				return v, err
			}}
		}},
	"`Balance` returns zero for an unknown account": {
		"Balance_returns_ErrNotFound_for_an_unknown_account", func(f *backend.File) chaingql.Backend {
			return mistaken{File: f, balance: func(ctx context.Context, a chaingql.Address) (*big.Int, error) {
				v, err := f.Balance(ctx, a)
				if errors.Is(err, chaingql.ErrNotFound) {
					return new(big.Int), nil
				}
				return v, err
			}}
		}},
	"`Last` returns blocks in descending order": {
		"a_page_has_exactly_the_blocks_that_the_query_selects", func(f *backend.File) chaingql.Backend {
			return mistaken{File: f, blocks: func(ctx context.Context, q query) (blocks, error) {
				page, err := f.Blocks(ctx, q)
				if q.Last > 0 {
					slices.Reverse(page)
				}
				return page, err
			}}
		}},
	"`Blocks` uses `>=` instead of `>` for `After`": {
		"a_page_has_exactly_the_blocks_that_the_query_selects", func(f *backend.File) chaingql.Backend {
			return mistaken{File: f, blocks: func(ctx context.Context, q query) (blocks, error) {
				page, err := f.Blocks(ctx, q)
				if q.After != "" && q.First > 0 {
					all, _ := f.Blocks(ctx, query{First: chaingql.MaxPage})
					for _, b := range all {
						if b.Cursor == q.After {
							page = append(blocks{b}, page[:max(len(page)-1, 0)]...)
						}
					}
				}
				return page, err
			}}
		}},
	"`Blocks` accepts any cursor": {
		"Blocks_and_Follow_reject_a_foreign_cursor_with_ErrBadCursor", func(f *backend.File) chaingql.Backend {
			return mistaken{File: f, blocks: func(ctx context.Context, q query) (blocks, error) {
				page, err := f.Blocks(ctx, q)
				if errors.Is(err, chaingql.ErrBadCursor) {
					return nil, nil
				}
				return page, err
			}}
		}},
	"`Blocks` returns a slice that callers share": {
		"Blocks_returns_a_page_that_the_caller_owns", func(f *backend.File) chaingql.Backend {
			var known sync.Map
			return mistaken{File: f, blocks: func(ctx context.Context, q query) (blocks, error) {
				if page, ok := known.Load(q); ok {
					return page.(blocks), nil
				}
				page, err := f.Blocks(ctx, q)
				known.Store(q, page)
				return page, err
			}}
		}},
	"`Blocks` ignores its context": {
		"a_call_whose_context_is_already_done_fails", func(f *backend.File) chaingql.Backend {
			return mistaken{File: f, blocks: func(ctx context.Context, q query) (blocks, error) {
				return f.Blocks(context.WithoutCancel(ctx), q)
			}}
		}},
	"`Blocks` reads rows and does not check `rows.Err()`": {
		"a_call_returns_promptly_when_its_context_is_done", func(f *backend.File) chaingql.Backend {
			return mistaken{File: f, blocks: func(ctx context.Context, q query) (blocks, error) {
				page, err := f.Blocks(ctx, q)
				for i := range page {
					if ctx.Err() != nil { // then rows.Next of database/sql and pgx returns false
						return page[:i], nil
					}
				}
				return page, err
			}}
		}},
	"`Follow` ignores its cursor": {
		"concurrent_calls_of_Follow_do_not_affect_each_other", func(f *backend.File) chaingql.Backend {
			return mistaken{File: f, follow: func(ctx context.Context, _ chaingql.Cursor) stream {
				return f.Follow(ctx, "")
			}}
		}},
	"`Follow` reads only the newest block": {
		"Follow_yields_the_stored_blocks_and_then_waits", func(f *backend.File) chaingql.Backend {
			return mistaken{File: f, follow: func(ctx context.Context, after chaingql.Cursor) stream {
				return chaingql.Poll(ctx, func(ctx context.Context, q query) (blocks, error) {
					return f.Blocks(ctx, query{After: q.After, Last: 1})
				}, after, 20*time.Millisecond)
			}}
		}},
	"`Follow` returns without an error": {
		"Follow_ends_when_its_context_is_done", func(f *backend.File) chaingql.Backend {
			return mistaken{File: f, follow: func(ctx context.Context, after chaingql.Cursor) stream {
				return func(yield func(chaingql.Block, error) bool) {
					for b, err := range f.Follow(ctx, after) {
						if err != nil || !yield(b, nil) {
							return
						}
					}
				}
			}}
		}},
}

// TestBackendtestReportsDocumentedMessageForEachMistake checks that backendtest detects each mistake in the table of
// docs/backend.md and reports the message that the table shows.
func TestBackendtestReportsDocumentedMessageForEachMistake(t *testing.T) {
	text, err := os.ReadFile("../../docs/backend.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile("(?m)^\\| (.*) \\| \"(.*)\" \\|$").FindAllStringSubmatch(string(text), -1)
	if len(rows) != len(mistakes) {
		t.Errorf("docs/backend.md lists %d mistakes, this test contains %d", len(rows), len(mistakes))
	}
	for _, row := range rows {
		t.Run(row[1], func(t *testing.T) {
			made, ok := mistakes[row[1]]
			if !ok {
				t.Fatal("docs/backend.md lists this mistake, but the variable mistakes does not contain it")
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			program := exec.CommandContext(ctx, os.Args[0],
				"-test.run", "^TestFilePassesAllRules$/^(the_source_opens|"+made.rule+")$")
			program.Env = append(os.Environ(), mistakeVariable+"="+row[1])
			output, err := program.CombinedOutput()
			if err == nil || !strings.Contains(string(output), row[2]) {
				t.Errorf("backendtest ended with error %v and this output:\n%s\nwant a failure with the text %q",
					err, output, row[2])
			}
		})
	}
}
