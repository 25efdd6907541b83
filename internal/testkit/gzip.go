package testkit

import (
	"compress/gzip"
	"io"
	"os"
	"testing"
)

// ReadGzip returns the decompressed contents of a gzip file, such as a recording in testdata. If that fails, the test
// ends.
func ReadGzip(t testing.TB, path string) []byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	unpacked, err := gzip.NewReader(f)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	contents, err := io.ReadAll(unpacked)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return contents
}
