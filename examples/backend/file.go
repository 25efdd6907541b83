// Package backend is a Backend as small as they get: a chain in a file, to which
// an indexer appends a line of JSON for each block and each balance. docs/backend.md
// walks through it.
package backend

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"math/big"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/chaingql/chaingql"
)

// A Record is one line of the file: a block, or what an account has from now on.
type Record struct {
	Block   *chaingql.Block   `json:",omitempty"`
	Account *chaingql.Address `json:",omitempty"`
	Balance *big.Int          `json:",omitempty"`
}

// A File is a [chaingql.Backend] that reads what others append.
type File struct {
	file *os.File

	mu       sync.Mutex // guards what follows, and is never held while the file is read
	offset   int64      // up to which the file has been read
	blocks   []chaingql.Block
	balances map[chaingql.Address]*big.Int
}

// Open opens a file, which may be empty.
func Open(path string) (*File, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("backend: %w", err)
	}
	return &File{file: file, balances: map[chaingql.Address]*big.Int{}}, nil
}

// Close closes the file.
func (f *File) Close() error { return f.file.Close() }

// catchUp reads what was appended since the last time. A line that is not
// complete yet is left for the next.
func (f *File) catchUp(ctx context.Context) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		f.mu.Lock()
		offset := f.offset
		f.mu.Unlock()
		text, err := io.ReadAll(io.NewSectionReader(f.file, offset, 1<<20))
		if err != nil {
			return fmt.Errorf("backend: %w", err)
		}
		text = text[:bytes.LastIndexByte(text, '\n')+1]
		if len(text) == 0 {
			return nil
		}
		if err := f.take(offset, text); err != nil {
			return fmt.Errorf("backend: in the lines from byte %d: %w", offset, err)
		}
	}
}

// take adds whole lines, unless another call was faster.
func (f *File) take(offset int64, text []byte) error {
	var records []Record
	for decoder := json.NewDecoder(bytes.NewReader(text)); decoder.More(); {
		var r Record
		if err := decoder.Decode(&r); err != nil {
			return err
		}
		records = append(records, r)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.offset != offset {
		return nil
	}
	for _, r := range records {
		switch {
		case r.Block != nil:
			if n := len(f.blocks); n > 0 && r.Block.Cursor <= f.blocks[n-1].Cursor {
				return fmt.Errorf("cursor %q comes after %q", r.Block.Cursor, f.blocks[n-1].Cursor)
			}
			f.blocks = append(f.blocks, *r.Block)
		case r.Account != nil && r.Balance != nil:
			f.balances[*r.Account] = r.Balance
		}
	}
	f.offset += int64(len(text))
	return nil
}

// Balance returns what the newest line says of an account.
func (f *File) Balance(ctx context.Context, addr chaingql.Address) (*big.Int, error) {
	if err := f.catchUp(ctx); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	balance, ok := f.balances[addr]
	if !ok {
		return nil, chaingql.ErrNotFound
	}
	return new(big.Int).Set(balance), nil // the caller's own
}

// Blocks returns a page of the blocks.
func (f *File) Blocks(ctx context.Context, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
	if !ours(q.After) || !ours(q.Before) {
		return nil, chaingql.ErrBadCursor
	}
	if err := f.catchUp(ctx); err != nil {
		return nil, err
	}
	f.mu.Lock()
	blocks := f.blocks // it only ever grows behind its end
	f.mu.Unlock()
	return chaingql.PageOf(blocks, q), nil
}

// ours reports whether a cursor could be one that chaingql.ChainOrder made.
func ours(c chaingql.Cursor) bool { return strings.Trim(string(c), "0123456789abcdefm-") == "" }

// Follow looks for new lines twenty times a second.
func (f *File) Follow(ctx context.Context, after chaingql.Cursor) iter.Seq2[chaingql.Block, error] {
	return chaingql.Poll(ctx, f.Blocks, after, 50*time.Millisecond)
}
