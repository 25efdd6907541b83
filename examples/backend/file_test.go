package backend_test

import (
	"encoding/json"
	"errors"
	"log/slog"
	"math/big"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/backendtest"
	"github.com/chaingql/chaingql/examples/backend"
)

// TestFilePassesAllRules checks that File satisfies the contract of chaingql.Backend.
func TestFilePassesAllRules(t *testing.T) {
	backendtest.Run(t, func(t *testing.T) backendtest.Harness {
		path := filepath.Join(t.TempDir(), "chain")
		appendTo(t, path, "")
		file := open(t, path)
		indexer := make(chan struct{}, 1) // a file has one writer at a time
		write := func(records ...backend.Record) error {
			indexer <- struct{}{}
			defer func() { <-indexer }()
			return appendRecords(path, records)
		}
		return backendtest.Harness{
			Backend: mistake(file),
			Append: func(blocks []chaingql.Block) error {
				records := make([]backend.Record, len(blocks))
				for i := range blocks {
					records[i].Block = &blocks[i]
				}
				return write(records...)
			},
			SetBalance: func(addr chaingql.Address, nano *big.Int) error {
				return write(backend.Record{Account: &addr, Balance: nano})
			},
		}
	})
}

// open opens a File and closes it when the test ends.
func open(t *testing.T, path string) *backend.File {
	t.Helper()
	file, err := backend.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	return file
}

// appendRecords appends one line for each record, as an indexer does.
func appendRecords(path string, records []backend.Record) error {
	var lines []byte
	for _, r := range records {
		line, err := json.Marshal(r)
		if err != nil {
			return err
		}
		lines = append(append(lines, line...), '\n')
	}
	return appendText(path, string(lines))
}

func appendText(path, text string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

func appendTo(t *testing.T, path, text string) {
	t.Helper()
	if err := appendText(path, text); err != nil {
		t.Fatal(err)
	}
}

func TestIncompleteLineIsReadOnceItIsComplete(t *testing.T) {
	path := filepath.Join(t.TempDir(), "chain")
	appendTo(t, path, `{"Block":{"Workchain":-1,"SeqNo":1,"Time":"2026-01-01T00:00:00Z","Cursor":"01m"}}`+"\n"+
		`{"Block":{"Workchain":-1,"Se`)
	file := open(t, path)
	page, err := file.Blocks(t.Context(), chaingql.BlocksQuery{First: 10})
	if err != nil || len(page) != 1 {
		t.Errorf("with an incomplete second line, Blocks returned %v and error %v, want the first block", page, err)
	}
	appendTo(t, path, `qNo":2,"Time":"2026-01-01T00:00:01Z","Cursor":"02m"}}`+"\n")
	page, err = file.Blocks(t.Context(), chaingql.BlocksQuery{First: 10})
	if err != nil || len(page) != 2 || page[1].SeqNo != 2 {
		t.Errorf("with a complete second line, Blocks returned %v and error %v, want two blocks", page, err)
	}
	appendTo(t, path, `{"Block":{"Workchain":-1,"SeqNo":3,"Time":"2026-01-01T00:00:02Z","Cursor":"02m"}}`+"\n")
	const want = `cursor "02m" comes after "02m"`
	_, err = file.Blocks(t.Context(), chaingql.BlocksQuery{First: 10})
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("with a cursor that does not ascend, Blocks returned error %v, want %q", err, want)
	}
}

// TestFileThatCannotBeReadOnIsAnError checks that calls do not return old data for ever.
func TestFileThatCannotBeReadOnIsAnError(t *testing.T) {
	const line = `{"Block":{"Workchain":-1,"SeqNo":1,"Time":"2026-01-01T00:00:00Z","Cursor":"01m"}}` + "\n"
	for _, row := range []struct {
		name, want string
		change     func(path string) error
	}{
		{"the file was truncated", "was truncated to 5 bytes", func(path string) error { return os.Truncate(path, 5) }},
		{"another file was renamed to the path", "another file has replaced", func(path string) error {
			return errors.Join(appendText(path+".new", line), os.Rename(path+".new", path))
		}},
		{"a line is too long", "longer than 1048576 bytes", func(path string) error {
			return appendText(path, strings.Repeat(" ", 1<<20)+line)
		}},
		{"a line begins with a bracket", "invalid character ']'", func(path string) error {
			return appendText(path, "]\n"+line)
		}},
	} {
		path := filepath.Join(t.TempDir(), "chain")
		appendTo(t, path, line)
		file := open(t, path)
		if _, err := file.Blocks(t.Context(), chaingql.BlocksQuery{First: 10}); err != nil {
			t.Fatal(err)
		}
		if err := row.change(path); err != nil {
			t.Fatal(err)
		}
		_, err := file.Blocks(t.Context(), chaingql.BlocksQuery{First: 10})
		if err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: Blocks returned error %v, want %q", row.name, err, row.want)
		}
	}
}

func TestHandlerServesBlocksOfFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "chain")
	appendTo(t, path, `{"Block":{"Workchain":-1,"SeqNo":1,"Time":"2026-01-01T00:00:00Z","Cursor":"01m"}}`+"\n")
	handler := chaingql.New(open(t, path), &chaingql.Options{Logger: slog.New(slog.DiscardHandler)})
	r := httptest.NewRequest("GET", "/demo/graphql?query={blockchain{blocks(last:1){edges{node{seq_no}}}}}", nil)
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	const want = `{"data":{"blockchain":{"blocks":{"edges":[{"node":{"seq_no":1}}]}}}}`
	if got := w.Body.String(); got != want {
		t.Errorf("got response %s, want %s", got, want)
	}
	if err := handler.Shutdown(t.Context()); err != nil {
		t.Errorf("Shutdown failed: %v", err)
	}
}
