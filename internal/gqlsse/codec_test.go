package gqlsse_test

import (
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chaingql/chaingql/internal/gqlsse"
)

func TestMultipartStreamFollowsApollosProtocol(t *testing.T) {
	const part = "\r\nContent-Type: application/json\r\n\r\n"
	const next = "\r\n--graphql"
	for name, tc := range map[string]struct {
		events []gqlsse.Event
		err    error
		want   string
	}{
		"events, then the end": {
			[]gqlsse.Event{event("01m", `{"data":1}`), event("", `{"data":2}`)}, io.EOF,
			part + `{"payload":{"data":1}}` + next + part + `{"payload":{"data":2}}` + next + "--\r\n",
		},
		"a final end is a response with errors": {
			nil, &gqlsse.End{Data: []byte(`{"errors":[]}`), Final: true},
			part + `{"payload":{"errors":[]}}` + next + "--\r\n",
		},
		"a retriable end is a transport error": {
			nil, fmt.Errorf("wrapped: %w", &gqlsse.End{ID: "01m", Data: []byte(`{"errors":[]}`)}),
			part + `{"payload":null,"errors":[]}` + next + "--\r\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript()
			s.put(tc.err, tc.events...)
			w := httptest.NewRecorder()
			if err := gqlsse.Serve(t.Context(), w, gqlsse.Options{Codec: gqlsse.Multipart}, s.wake, s); err != nil {
				t.Fatal(err)
			}
			if got, want := w.Body.String(), next+part+"{}"+next+tc.want; got != want {
				t.Errorf("wrote %q\nwant  %q", got, want)
			}
			h := w.Result().Header
			if h.Get("X-Accel-Buffering") != "no" || h.Get("Cache-Control") != "no-store" {
				t.Errorf("received the headers %v, want those of a stream that is not buffered and not cached", h)
			}
			media, params, err := mime.ParseMediaType(h.Get("Content-Type"))
			if err != nil || media != "multipart/mixed" || params["subscriptionspec"] != "1.0" {
				t.Fatalf("received the type %q (%v), want multipart/mixed;subscriptionSpec=1.0",
					h.Get("Content-Type"), err)
			}
			parts := multipart.NewReader(strings.NewReader(w.Body.String()), params["boundary"])
			n := 0
			for ; err == nil; n++ {
				_, err = parts.NextPart()
			}
			if want := strings.Count(tc.want, part) + 2; err != io.EOF || n != want { // the heartbeat, and the end
				t.Errorf("mime/multipart read %d parts and %v, want %d and the end", n-1, err, want-1)
			}
		})
	}
}

func TestQueryResponseEqualsAStreamOfOneEvent(t *testing.T) {
	for name, codec := range map[string]*gqlsse.Codec{"events": gqlsse.Events, "multipart": gqlsse.Multipart} {
		s := newScript()
		s.put(io.EOF, event("", `{"data":1}`))
		w := httptest.NewRecorder()
		if err := gqlsse.Serve(t.Context(), w, gqlsse.Options{Codec: codec}, s.wake, s); err != nil {
			t.Fatal(err)
		}
		want := w.Body.String()
		if got := string(codec.AppendSuffix(append(codec.AppendPrefix(nil), `{"data":1}`...))); got != want {
			t.Errorf("%s: prefix and suffix make %q, want %q", name, got, want)
		}
	}
}
