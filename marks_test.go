package chaingql

import (
	"cmp"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/chaingql/chaingql/internal/blocklog"
)

func TestMarkedCursorIsResumedByItsHandlerAndPlainToOthers(t *testing.T) {
	mine, other := &Handler{id: "0a1b2c3d"}, &Handler{id: "zyxwvut7"}
	for _, cursor := range []string{"", "2320m", "a!b", "~", strings.Repeat("x", 300)} {
		for _, mark := range []blocklog.Mark{1, 35, 1 << 40, 1<<64 - 1} {
			marked := mine.marked(cursor, mark)
			if len(marked)-len(cursor) > 30 || strings.Trim(marked[len(cursor):], "!.0123456789abcdefghijklmnopqrstuvwxyz") != "" {
				t.Errorf("suffix %q", marked[len(cursor):])
			}
			if plain, m := mine.resumeAt(marked); plain != cursor || m != mark {
				t.Errorf("%q is resumed at %q with mark %d", marked, plain, m)
			}
			if plain, m := other.resumeAt(marked); plain != cursor || m != 0 {
				t.Errorf("%q is resumed by another at %q with mark %d", marked, plain, m)
			}
			if plain := plainCursor(marked); plain != Cursor(cursor) {
				t.Errorf("%q is plain %q", marked, plain)
			}
		}
		if got := mine.marked(cursor, 0); got != cursor {
			t.Errorf("%q without a mark is %q", cursor, got)
		}
	}
}

func TestCursorThatOnlyLooksMarkedIsLeftAsItIs(t *testing.T) {
	h := &Handler{id: "0a1b2c3d"}
	marked := h.marked("2320m", 7)
	for i := range marked {
		for _, text := range []string{marked[:i], marked[i:], marked[:i] + "z" + marked[i:], marked[:i] + string(marked[i]^1) + marked[i+1:]} {
			if plain, mark := h.resumeAt(text); text != marked && (plain != text || mark != 0) {
				t.Errorf("%q is resumed at %q with mark %d", text, plain, mark)
			}
		}
	}
	for _, text := range []string{"a!", "!", "a!b", "a!0.0a1b2c3d0000000", "2320m!7", "a!-1." + h.id} {
		if plain, mark := h.resumeAt(text); plain != text || mark != 0 {
			t.Errorf("%q is resumed at %q with mark %d", text, plain, mark)
		}
	}
}

func TestMarkedCursorsCompareAsPlainOnes(t *testing.T) {
	h := &Handler{id: "0a1b2c3d"}
	rnd := rand.New(rand.NewPCG(1, 1))
	text := func() string {
		b := make([]byte, 1+rnd.IntN(3))
		for i := range b {
			b[i] = `"#-09am~`[rnd.IntN(8)]
		}
		return string(b)
	}
	for range 2000 {
		a, b := text(), text()
		if want := cmp.Compare(a, b); want != 0 && (cmp.Compare(h.marked(a, 3), b) != want || cmp.Compare(a, h.marked(b, 3)) != want) {
			t.Fatalf("%q and %q compare otherwise with a mark", a, b)
		}
	}
}

func FuzzMarkedCursor(f *testing.F) {
	h := &Handler{id: "0a1b2c3d"}
	f.Add("2320m", uint64(5))
	f.Add(h.marked("2320m", 7), uint64(0))
	f.Fuzz(func(t *testing.T, cursor string, mark uint64) {
		plain, m := h.resumeAt(cursor)
		if !strings.HasPrefix(cursor, plain) || m == 0 && plain == cursor && mark == 0 {
			return
		}
		if again, m := h.resumeAt(h.marked(cursor, blocklog.Mark(mark))); mark != 0 && (again != cursor || uint64(m) != mark) {
			t.Errorf("%q with mark %d is resumed at %q with %d", cursor, mark, again, m)
		}
	})
}
