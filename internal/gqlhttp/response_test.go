package gqlhttp

import (
	"net/http"
	"strconv"
	"testing"
)

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
