package explorer_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/chaingql/chaingql/explorer"
)

// A nowhere is an [http.ResponseWriter] that keeps only the headers.
type nowhere struct{ header http.Header }

func (w nowhere) Header() http.Header            { return w.header }
func (w nowhere) Write(text []byte) (int, error) { return len(text), nil }
func (w nowhere) WriteHeader(int)                {}

// Decompressing an asset needs at least a window of 32 KiB.
func TestAssetIsDecompressedOnce(t *testing.T) {
	h := explorer.New(nil)
	entries, err := os.ReadDir("assets")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		r := httptest.NewRequest("GET", "/assets/"+strings.TrimSuffix(entry.Name(), ".gz"), nil)
		h.ServeHTTP(nowhere{http.Header{}}, r)
		const requests = 20
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range requests {
			h.ServeHTTP(nowhere{http.Header{}}, r)
		}
		runtime.ReadMemStats(&after)
		if each := (after.TotalAlloc - before.TotalAlloc) / requests; each > 16<<10 {
			t.Errorf("%s: a later request allocates %d bytes, want too few to decompress it", entry.Name(), each)
		}
	}
}
