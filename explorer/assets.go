package explorer

import (
	"bytes"
	"compress/gzip"
	"embed"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
)

//go:embed assets
var assetFiles embed.FS

// files maps the names of assets to the assets.
type files map[string]asset

// An asset is a file that the pages load, or LICENSES.txt.
type asset struct {
	content []byte // compressed with gzip, except that of LICENSES.txt
	// plain returns the content decompressed. The first call for the largest asset takes 10 ms of a processor, so later
	// calls return the same bytes. If a client requests every asset without accepting gzip, they occupy 6.7 MB.
	plain func() []byte
}

var assets = load()

// noContentPolicy is the Content-Security-Policy of responses that are not pages. If a visitor opens
// such a response in the browser, it cannot load anything.
const noContentPolicy = "default-src 'none'; frame-ancestors 'none'"

const licenses = "LICENSES.txt"

// load reads the embedded assets.
func load() files {
	entries, err := assetFiles.ReadDir("assets")
	if err != nil {
		panic(err) // impossible, because the files are embedded
	}
	found := files{}
	for _, entry := range entries {
		content, err := assetFiles.ReadFile("assets/" + entry.Name())
		if err != nil {
			panic(err)
		}
		plain := sync.OnceValue(func() []byte { return unpack(content) })
		found[strings.TrimSuffix(entry.Name(), ".gz")] = asset{content, plain}
	}
	return found
}

func (f files) have(name string) bool { return f[name].content != nil }

// name returns the path of the asset that was built from a source file. For example, the asset for
// live.js is assets/live-HASH.js.
func (f files) name(source string) string {
	extension := path.Ext(source)
	stem := strings.TrimSuffix(source, extension) + "-"
	for name := range f {
		hash, ok := strings.CutPrefix(strings.TrimSuffix(name, extension), stem)
		if ok && path.Ext(name) == extension && len(hash) == 8 {
			return "assets/" + name
		}
	}
	panic("explorer: no asset for " + source + ": run make explorer") // makes every test fail
}

// types maps file extensions to media types.
var types = map[string]string{
	".css": "text/css; charset=utf-8",
	".js":  "text/javascript; charset=utf-8",
	".svg": "image/svg+xml",
	".ttf": "font/ttf",
	".txt": "text/plain; charset=utf-8",
}

// serve responds with the asset of this name, which must exist.
func (f files) serve(w http.ResponseWriter, r *http.Request, name string) {
	header, content := w.Header(), f[name].content
	header.Set("Content-Security-Policy", noContentPolicy) // browsers apply it to workers too
	header.Set("Content-Type", types[path.Ext(name)])
	if name == licenses {
		header.Set("Cache-Control", "no-cache")
	} else {
		header.Set("Cache-Control", "public, max-age=31536000, immutable") // the name contains a hash of the content
		header.Set("Vary", "Accept-Encoding")
		if acceptsGzip(r) {
			header.Set("Content-Encoding", "gzip")
		} else {
			content = f[name].plain()
		}
	}
	header.Set("Content-Length", strconv.Itoa(len(content)))
	if r.Method != http.MethodHead {
		_, _ = w.Write(content) // an error means that the client has disconnected
	}
}

// unpack returns the decompressed content.
func unpack(content []byte) []byte {
	r, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		panic(fmt.Errorf("explorer: decompressing an asset: %w", err)) // impossible, because the files are embedded
	}
	size := binary.LittleEndian.Uint32(content[len(content)-4:])
	plain := make([]byte, size)
	if _, err := io.ReadFull(r, plain); err != nil {
		panic(fmt.Errorf("explorer: decompressing an asset: %w", err))
	}
	return plain
}

// acceptsGzip reports whether the client accepts gzip. All browsers do.
func acceptsGzip(r *http.Request) bool {
	for coding := range strings.SplitSeq(strings.Join(r.Header.Values("Accept-Encoding"), ","), ",") {
		coding, weight, _ := strings.Cut(strings.ReplaceAll(coding, " ", ""), ";")
		if coding == "gzip" || coding == "*" {
			q, err := strconv.ParseFloat(strings.TrimPrefix(weight, "q="), 64)
			return weight == "" || err == nil && q > 0
		}
	}
	return false
}
