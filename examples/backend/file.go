// Package backend is a minimal chaingql.Backend. It reads a chain from a file to which an indexer appends one line of
// JSON for each block and for each new balance. docs/backend.md explains the code.
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

// A Record is one line of the file: a block, or the new balance of an account.
type Record struct {
	Block   *chaingql.Block   `json:",omitempty"`
	Account *chaingql.Address `json:",omitempty"`
	Balance *big.Int          `json:",omitempty"`
}

// A File is a [chaingql.Backend] that reads a chain from a file while another process appends to it.
type File struct {
	file *os.File

	mu       sync.Mutex // guards the fields below; not held while reading the file
	offset   int64      // number of bytes read so far
	blocks   []chaingql.Block
	balances map[chaingql.Address]*big.Int
}

// Open opens the file at path, which may be empty.
func Open(path string) (*File, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("backend: %w", err)
	}
	return &File{file: file, balances: map[chaingql.Address]*big.Int{}}, nil
}

// Close closes the file.
func (f *File) Close() error { return f.file.Close() }

// maxLine is the maximum length of a line. catchUp reads at most this many bytes at a time.
const maxLine = 1 << 20

// catchUp reads the lines that were appended since the last call. An incomplete line is left for
// the next call.
func (f *File) catchUp(ctx context.Context) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		f.mu.Lock()
		offset := f.offset
		f.mu.Unlock()
		text, err := io.ReadAll(io.NewSectionReader(f.file, offset, maxLine))
		if err != nil {
			return fmt.Errorf("backend: %w", err)
		}
		info, err := f.file.Stat()
		if err != nil {
			return fmt.Errorf("backend: %w", err)
		}
		current, err := os.Stat(f.file.Name())
		if err != nil {
			return fmt.Errorf("backend: %w", err)
		}
		lines := text[:bytes.LastIndexByte(text, '\n')+1]
		switch {
		case !os.SameFile(info, current):
			return fmt.Errorf("backend: another file has replaced %s", f.file.Name())
		case info.Size() < offset:
			return fmt.Errorf("backend: the file was truncated to %d bytes; %d were read before", info.Size(), offset)
		case len(text) == maxLine && len(lines) == 0:
			return fmt.Errorf("backend: the line at byte %d is longer than %d bytes", offset, maxLine)
		case len(lines) == 0:
			return nil
		}
		if err := f.take(offset, lines); err != nil {
			return fmt.Errorf("backend: lines from byte %d: %w", offset, err)
		}
	}
}

// take parses text, which consists of the complete lines that start at byte offset of the file, and adds their records
// to f. If another call has already added them, take does nothing.
func (f *File) take(offset int64, text []byte) error {
	var records []Record
	for decoder := json.NewDecoder(bytes.NewReader(text)); ; {
		var r Record
		if err := decoder.Decode(&r); err == io.EOF {
			break
		} else if err != nil {
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
				return fmt.Errorf("cursor %q comes after %q: cursors must ascend", r.Block.Cursor, f.blocks[n-1].Cursor)
			}
			f.blocks = append(f.blocks, *r.Block)
		case r.Account != nil && r.Balance != nil:
			f.balances[*r.Account] = r.Balance
		}
	}
	f.offset += int64(len(text))
	return nil
}

// Balance returns the balance from the newest line for the account.
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
	return new(big.Int).Set(balance), nil // the caller may modify it
}

// Blocks returns the page of blocks that q selects.
func (f *File) Blocks(ctx context.Context, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
	if !ours(q.After) || !ours(q.Before) {
		return nil, chaingql.ErrBadCursor
	}
	if err := f.catchUp(ctx); err != nil {
		return nil, err
	}
	f.mu.Lock()
	blocks := f.blocks // blocks are only appended, never changed
	f.mu.Unlock()
	return chaingql.PageOf(blocks, q), nil
}

// ours reports whether chaingql.ChainOrder could have returned c.
func ours(c chaingql.Cursor) bool { return strings.Trim(string(c), "0123456789abcdefm-") == "" }

// Follow polls the file for new lines every 50 ms.
func (f *File) Follow(ctx context.Context, after chaingql.Cursor) iter.Seq2[chaingql.Block, error] {
	return chaingql.Poll(ctx, f.Blocks, after, 50*time.Millisecond)
}
