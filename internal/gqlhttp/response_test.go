package gqlhttp

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// Splitting a header of a megabyte of commas would take 14 ms for each request.
func TestListsInHeadersAreIgnoredBeyondTheirLimit(t *testing.T) {
	for name, test := range map[string]struct {
		element string
		read    func(http.Header) bool
	}{
		"If-None-Match": {`"tag"`, func(h http.Header) bool { return Matches(h, `"tag"`) }},
		"Upgrade": {"websocket", func(h http.Header) bool {
			return IsUpgrade(&http.Request{Method: "GET", Header: h})
		}},
		"Access-Control-Request-Headers": {"authorization", func(h http.Header) bool {
			return allowedHeaders(h) != ""
		}},
	} {
		longest := strings.Repeat(",", maxList-2-len(test.element))
		for _, lines := range [][]string{{longest + "," + test.element}, {longest, test.element}} {
			if !test.read(http.Header{name: lines}) {
				t.Errorf("%s: a list of the maximum size in %d lines was ignored", name, len(lines))
			}
			lines[0] += ","
			if test.read(http.Header{name: lines}) {
				t.Errorf("%s: a list in %d lines that exceeds the maximum size by one byte was split", name, len(lines))
			}
		}
	}
}

// BenchmarkHeader compares header values that all responses share with values that each response allocates.
func BenchmarkHeader(b *testing.B) {
	header := http.Header{}
	b.Run("shared", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			SetContent(header, JSON, 321)
		}
	})
	b.Run("own", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			v := [...]string{utf8JSON[0], strconv.Itoa(321), "nosniff"}
			header["Content-Type"], header["Content-Length"] = v[0:1:1], v[1:2:2]
			header["X-Content-Type-Options"] = v[2:3:3]
		}
	})
}
