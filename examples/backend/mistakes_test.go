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

// asMistaken is an environment variable with the name of a mistake.
const asMistaken = "CHAINGQL_TEST_MISTAKE"

// mistake returns the file, or the file with the mistake from the environment.
func mistake(f *backend.File) chaingql.Backend {
	if name := os.Getenv(asMistaken); name != "" {
		return mistakes[name].make(f)
	}
	return f
}

// A mistaken backend is a File with one replaced method.
type mistaken struct {
	*backend.File
	balance func(context.Context, chaingql.Address) (*big.Int, error)
	blocks  func(context.Context, chaingql.BlocksQuery) ([]chaingql.Block, error)
	follow  func(context.Context, chaingql.Cursor) iter.Seq2[chaingql.Block, error]
}

func (m mistaken) Balance(ctx context.Context, a chaingql.Address) (*big.Int, error) {
	if m.balance == nil {
		return m.File.Balance(ctx, a)
	}
	return m.balance(ctx, a)
}

func (m mistaken) Blocks(ctx context.Context, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
	if m.blocks == nil {
		return m.File.Blocks(ctx, q)
	}
	return m.blocks(ctx, q)
}

func (m mistaken) Follow(ctx context.Context, after chaingql.Cursor) iter.Seq2[chaingql.Block, error] {
	if m.follow == nil {
		return m.File.Follow(ctx, after)
	}
	return m.follow(ctx, after)
}

// mistakes lists the mistakes of docs/backend.md and the rule that each violates.
var mistakes = map[string]struct {
	rule string
	make func(*backend.File) chaingql.Backend
}{
	"a balance that is handed out twice": {"a_balance_is_the_caller's_own", func(f *backend.File) chaingql.Backend {
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
	"zero for an unknown account": {"an_unknown_account_is_ErrNotFound", func(f *backend.File) chaingql.Backend {
		return mistaken{File: f, balance: func(ctx context.Context, a chaingql.Address) (*big.Int, error) {
			v, err := f.Balance(ctx, a)
			if errors.Is(err, chaingql.ErrNotFound) {
				return new(big.Int), nil
			}
			return v, err
		}}
	}},
	"`Last` from the newest down": {"a_page_is_what_was_asked_for", func(f *backend.File) chaingql.Backend {
		return mistaken{File: f, blocks: func(ctx context.Context, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
			page, err := f.Blocks(ctx, q)
			if q.Last > 0 {
				slices.Reverse(page)
			}
			return page, err
		}}
	}},
	"`>=` in place of `>` for `After`": {"a_page_is_what_was_asked_for", func(f *backend.File) chaingql.Backend {
		return mistaken{File: f, blocks: func(ctx context.Context, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
			page, err := f.Blocks(ctx, q)
			if q.After != "" && q.First > 0 {
				all, _ := f.Blocks(ctx, chaingql.BlocksQuery{First: chaingql.MaxPage})
				for _, b := range all {
					if b.Cursor == q.After {
						page = append([]chaingql.Block{b}, page[:max(len(page)-1, 0)]...)
					}
				}
			}
			return page, err
		}}
	}},
	"any cursor is taken": {"a_foreign_cursor_is_ErrBadCursor", func(f *backend.File) chaingql.Backend {
		return mistaken{File: f, blocks: func(ctx context.Context, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
			page, err := f.Blocks(ctx, q)
			if errors.Is(err, chaingql.ErrBadCursor) {
				return nil, nil
			}
			return page, err
		}}
	}},
	"a page of a shared slice": {"a_page_is_the_caller's_own", func(f *backend.File) chaingql.Backend {
		var known sync.Map
		return mistaken{File: f, blocks: func(ctx context.Context, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
			if page, ok := known.Load(q); ok {
				return page.([]chaingql.Block), nil
			}
			page, err := f.Blocks(ctx, q)
			known.Store(q, page)
			return page, err
		}}
	}},
	"a context that nobody looks at": {"a_call_whose_context_is_done_fails", func(f *backend.File) chaingql.Backend {
		return mistaken{File: f, blocks: func(ctx context.Context, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
			return f.Blocks(context.WithoutCancel(ctx), q)
		}}
	}},
	"`Follow` that ignores its cursor": {"several_Follows_do_not_mind_each_other", func(f *backend.File) chaingql.Backend {
		return mistaken{File: f, follow: func(ctx context.Context, _ chaingql.Cursor) iter.Seq2[chaingql.Block, error] {
			return f.Follow(ctx, "")
		}}
	}},
	"`Follow` that looks at the newest block only": {"Follow_yields_the_stored_blocks_and_waits", func(f *backend.File) chaingql.Backend {
		return mistaken{File: f, follow: func(ctx context.Context, after chaingql.Cursor) iter.Seq2[chaingql.Block, error] {
			return chaingql.Poll(ctx, func(ctx context.Context, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
				return f.Blocks(ctx, chaingql.BlocksQuery{After: q.After, Last: 1})
			}, after, 20*time.Millisecond)
		}}
	}},
	"`Follow` that ends without a word": {"a_Follow_ends_when_its_context_is_done", func(f *backend.File) chaingql.Backend {
		return mistaken{File: f, follow: func(ctx context.Context, after chaingql.Cursor) iter.Seq2[chaingql.Block, error] {
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

// TestMistakesHaveDocumentedMessages checks that backendtest finds each mistake of docs/backend.md
// and reports it with the documented message.
func TestMistakesHaveDocumentedMessages(t *testing.T) {
	text, err := os.ReadFile("../../docs/backend.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile("(?m)^\\| (.*) \\| \"(.*)\" \\|$").FindAllStringSubmatch(string(text), -1)
	if len(rows) != len(mistakes) {
		t.Errorf("%d mistakes are documented, %d are tested", len(rows), len(mistakes))
	}
	for _, row := range rows {
		t.Run(row[1], func(t *testing.T) {
			made, ok := mistakes[row[1]]
			if !ok {
				t.Fatal("this mistake is not tested")
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			program := exec.CommandContext(ctx, os.Args[0], "-test.run", "^TestFileKeepsContract$/^(the_source_opens|"+made.rule+")$")
			program.Env = append(os.Environ(), asMistaken+"="+row[1])
			said, err := program.CombinedOutput()
			if err == nil || !strings.Contains(string(said), row[2]) {
				t.Errorf("%v: backendtest reported\n%s\nwant %s", err, said, row[2])
			}
		})
	}
}
