package chaingql_test

import (
	"io"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// A deadlineRecorder records the deadline for reading.
type deadlineRecorder struct {
	*httptest.ResponseRecorder
	read time.Time
}

func (d *deadlineRecorder) SetReadDeadline(t time.Time) error {
	d.read = t
	return nil
}

// With HTTP/2, a client can announce an empty body and never end it.
func TestBodyTimeoutAppliesToBodiesThatAreAnnouncedAsEmpty(t *testing.T) {
	h, _ := newHandler(t, memchain.New(), chaingql.Options{})
	for protocol, want := range map[int]bool{1: false, 2: true} {
		r := httptest.NewRequest("POST", "/demo/graphql", io.NopCloser(strings.NewReader("")))
		r.Header.Set("Content-Type", "application/json")
		r.ContentLength, r.ProtoMajor = 0, protocol
		w := &deadlineRecorder{ResponseRecorder: httptest.NewRecorder()}
		mounted(h).ServeHTTP(w, r)
		if bounded := !w.read.IsZero(); bounded != want {
			t.Errorf("with HTTP/%d, the body has a deadline: %v, want %v", protocol, bounded, want)
		}
	}
}
