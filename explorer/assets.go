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
)

//go:embed assets
var assetFiles embed.FS

// files maps the names of assets to their contents. All contents are compressed with gzip, except
// that of LICENSES.txt.
type files map[string][]byte

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
		found[strings.TrimSuffix(entry.Name(), ".gz")] = content
	}
	return found
}

func (f files) have(name string) bool { return f[name] != nil }

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
	header, content := w.Header(), f[name]
	header.Set("Content-Security-Policy", noContentPolicy) // browsers apply it to workers too
	header.Set("Content-Type", types[path.Ext(name)])
	write, size := func() { _, _ = w.Write(content) }, len(content) // an error means that the client has disconnected
	if name == licenses {
		header.Set("Cache-Control", "no-cache")
	} else {
		header.Set("Cache-Control", "public, max-age=31536000, immutable") // the name contains a hash of the content
		header.Set("Vary", "Accept-Encoding")
		if acceptsGzip(r) {
			header.Set("Content-Encoding", "gzip")
		} else {
			write, size = func() { unpack(w, content) }, int(binary.LittleEndian.Uint32(content[len(content)-4:]))
		}
	}
	header.Set("Content-Length", strconv.Itoa(size))
	if r.Method != http.MethodHead {
		write()
	}
}

// unpack writes the decompressed content.
func unpack(w io.Writer, content []byte) {
	r, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		panic(fmt.Errorf("explorer: decompressing an asset: %w", err)) // impossible, because the files are embedded
	}
	_, _ = io.Copy(w, r) // an error means that the client has disconnected
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
