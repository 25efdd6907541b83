package strictjson

import (
	"fmt"
	"strings"
	"testing"
)

func TestRepeatedReadsEveryStringLikeText(t *testing.T) {
	texts := []string{
		`"a"`, `  "a"`, `"a",`, `"ab"`, `"a\""`, `"a\\"`, `"a\\\""`, `"\u0061"`, `"é"`, `"\u00e9"`, `""`,
		`"`, `"a`, `a`, ``, "\"\xff\"", "\"a\nb\"", `"a\nb"`,
		`"` + strings.Repeat("a", maxRepeated-2) + `"`, `"` + strings.Repeat("a", 8*maxRepeated) + `"`,
	}
	for _, before := range texts {
		for _, text := range texts {
			var last Repeated
			var got, plain Reader
			got.Reset([]byte(before), 1)
			_, _ = got.Repeated(&last)
			got.Reset([]byte(text), 1)
			plain.Reset([]byte(text), 1)
			is, err := got.Repeated(&last)
			want, wantErr := plain.Text()
			if string(is) != string(want) || fmt.Sprint(err) != fmt.Sprint(wantErr) {
				t.Errorf("after %.20q, %.20q is read as %.20q (%v), want %.20q (%v)",
					before, text, is, err, want, wantErr)
			}
			if err == nil && got.at != plain.at {
				t.Errorf("after %.20q, %.20q ends at byte %d, want %d", before, text, got.at, plain.at)
			}
			if n := cap(last.raw) + cap(last.text); n > 4*maxRepeated {
				t.Errorf("after %.20q and %.20q, a Repeated keeps %d bytes", before, text, n)
			}
		}
	}
}
