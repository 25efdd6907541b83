package chaingql

import (
	"cmp"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/chaingql/chaingql/internal/blocklog"
	"github.com/chaingql/chaingql/internal/plan"
)

func TestOnlyTheHandlerThatIssuedACursorReadsItsMark(t *testing.T) {
	for _, suffix := range []string{"", "~epoch1"} {
		mine, other := &chain{suffix: suffix, id: "0a1b2c3d"}, &chain{suffix: suffix, id: "zyxwvut7"}
		checkMarks(t, mine, other)
	}
}

func checkMarks(t *testing.T, mine, other *chain) {
	t.Helper()
	for _, cursor := range []string{"", "2320m", "a!b", strings.Repeat("x", 300)} {
		for _, mark := range []blocklog.Mark{1, 35, 1 << 40, 1<<64 - 1} {
			marked := mine.cursor(cursor, mark)
			const alphabet = "~!.0123456789abcdefghijklmnopqrstuvwxyz"
			if len(marked)-len(cursor) > 30+len(mine.suffix) || strings.Trim(marked[len(cursor):], alphabet) != "" {
				t.Errorf("the suffix %q is too long or has other characters", marked[len(cursor):])
			}
			if plain, m, err := mine.parse(marked); plain != cursor || m != mark || err != nil {
				t.Errorf("the issuing Handler resumes %q at %q with mark %d and the error %v", marked, plain, m, err)
			}
			if plain, m, err := other.parse(marked); plain != cursor || m != 0 || err != nil {
				t.Errorf("another Handler resumes %q at %q with mark %d and the error %v", marked, plain, m, err)
			}
			if got := mine.cursor(marked[:len(cursor)], 0); cursor != "" && got != cursor+mine.suffix {
				t.Errorf("%q with mark 0 is %q, want %q", cursor, got, cursor+mine.suffix)
			}
		}
	}
}

func TestCursorWithAnInvalidMarkIsUnchanged(t *testing.T) {
	c := &chain{id: "0a1b2c3d"}
	marked := c.cursor("2320m", 7)
	for i := range marked {
		for _, text := range []string{
			marked[:i], marked[i:], marked[:i] + "z" + marked[i:], marked[:i] + string(marked[i]^1) + marked[i+1:],
		} {
			if plain, mark, _ := c.parse(text); text != marked && (plain != text || mark != 0) {
				t.Errorf("parse(%q) is %q with mark %d, want no change", text, plain, mark)
			}
		}
	}
	for _, text := range []string{"a!", "!", "a!b", "a!0.0a1b2c3d0000000", "2320m!7", "a!-1." + c.id} {
		if plain, mark, _ := c.parse(text); plain != text || mark != 0 {
			t.Errorf("parse(%q) is %q with mark %d, want no change", text, plain, mark)
		}
	}
}

func TestMarksDoNotChangeCursorOrder(t *testing.T) {
	c := &chain{id: "0a1b2c3d"}
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
		want := cmp.Compare(a, b)
		if want != 0 && (cmp.Compare(c.cursor(a, 3), b) != want || cmp.Compare(a, c.cursor(b, 3)) != want) {
			t.Fatalf("a mark changes the order of %q and %q", a, b)
		}
	}
}

func FuzzMarkedCursor(f *testing.F) {
	c := &chain{id: "0a1b2c3d"}
	f.Add("2320m", uint64(5))
	f.Add(c.cursor("2320m", 7), uint64(0))
	f.Fuzz(func(t *testing.T, cursor string, mark uint64) {
		plain, m, _ := c.parse(cursor)
		if !strings.HasPrefix(cursor, plain) || m == 0 && plain == cursor && mark == 0 {
			return
		}
		again, m, _ := c.parse(c.cursor(cursor, blocklog.Mark(mark)))
		if mark != 0 && (again != cursor || uint64(m) != mark) {
			t.Errorf("after %q was marked with %d, parse returns %q with mark %d", cursor, mark, again, m)
		}
	})
}

func TestErrorsOmitCursorsLongerThan256Bytes(t *testing.T) {
	for size, want := range map[int]int{0: 0, 1: 1, 256: 256, 257: 0} {
		details := at(&plan.Error{}, strings.Repeat("x", size)).Details
		if _, there := details["cursor"]; len(details["cursor"]) != want || there != (want > 0) {
			t.Errorf("a cursor of %d bytes is reported as %q", size, details["cursor"])
		}
	}
}
