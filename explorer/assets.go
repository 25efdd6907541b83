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

// files maps the names of assets to their contents, which are gzip except for LICENSES.txt.
type files map[string][]byte

var assets = load()

// noContentPolicy is the Content-Security-Policy of responses that are not pages: opened directly,
// they can load nothing.
const noContentPolicy = "default-src 'none'; frame-ancestors 'none'"

const licenses = "LICENSES.txt"

func load() files {
	entries, err := assetFiles.ReadDir("assets")
	if err != nil {
		panic(err) // the files are embedded
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

// name returns the path of the file that the build made from a source file, for example
// live-HASH.js from live.js.
func (f files) name(source string) string {
	extension := path.Ext(source)
	stem := strings.TrimSuffix(source, extension) + "-"
	for name := range f {
		hash, ok := strings.CutPrefix(strings.TrimSuffix(name, extension), stem)
		if ok && path.Ext(name) == extension && len(hash) == 8 {
			return "assets/" + name
		}
	}
	panic("explorer: " + source + " was not built: make explorer") // every test would fail
}

var types = map[string]string{
	".css": "text/css; charset=utf-8",
	".js":  "text/javascript; charset=utf-8",
	".svg": "image/svg+xml",
	".ttf": "font/ttf",
	".txt": "text/plain; charset=utf-8",
}

func (f files) serve(w http.ResponseWriter, r *http.Request, name string) {
	header, content := w.Header(), f[name]
	header.Set("Content-Security-Policy", noContentPolicy) // also applies to workers
	header.Set("Content-Type", types[path.Ext(name)])
	write, size := func() { _, _ = w.Write(content) }, len(content) // an error means that the client has disconnected
	if name == licenses {
		header.Set("Cache-Control", "no-cache")
	} else {
		header.Set("Cache-Control", "public, max-age=31536000, immutable") // the name contains a hash of the content
		header.Set("Vary", "Accept-Encoding")
		if takesGzip(r) {
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

func unpack(w io.Writer, content []byte) {
	r, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		panic(fmt.Errorf("explorer: %w", err)) // the files are embedded
	}
	_, _ = io.Copy(w, r) // an error means that the client has disconnected
}

// takesGzip reports whether the client accepts gzip, as all browsers do.
func takesGzip(r *http.Request) bool {
	for coding := range strings.SplitSeq(strings.Join(r.Header.Values("Accept-Encoding"), ","), ",") {
		coding, weight, _ := strings.Cut(strings.ReplaceAll(coding, " ", ""), ";")
		if coding == "gzip" || coding == "*" {
			q, err := strconv.ParseFloat(strings.TrimPrefix(weight, "q="), 64)
			return weight == "" || err == nil && q > 0
		}
	}
	return false
}
