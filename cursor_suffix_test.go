package chaingql

import (
	"cmp"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/chaingql/chaingql/internal/blocklog"
	"github.com/chaingql/chaingql/internal/plan"
)

func TestHandlerIgnoresReportedGapsInCursorsOfOtherHandlers(t *testing.T) {
	for _, suffix := range []string{"", "~epoch1"} {
		mine, other := &chain{suffix: suffix, id: "0a1b2c3d"}, &chain{suffix: suffix, id: "zyxwvut7"}
		checkSuffixes(t, mine, other)
	}
}

func checkSuffixes(t *testing.T, mine, other *chain) {
	t.Helper()
	for _, cursor := range []string{"", "2320m", "a!b", strings.Repeat("x", MaxCursor)} {
		for _, gaps := range []blocklog.ReportedGaps{1, 35, 1 << 40, 1<<64 - 1} {
			full := mine.cursor(cursor, gaps)
			const alphabet = "~!.0123456789abcdefghijklmnopqrstuvwxyz"
			if len(full)-len(cursor) > 30+len(mine.suffix) || strings.Trim(full[len(cursor):], alphabet) != "" {
				t.Errorf("the suffix %q is too long or has other characters", full[len(cursor):])
			}
			if plain, m, err := mine.parse(full); plain != cursor || m != gaps || err != nil {
				t.Errorf("the issuing Handler resumes %q at %q with gaps %d and the error %v", full, plain, m, err)
			}
			if plain, m, err := other.parse(full); plain != cursor || m != 0 || err != nil {
				t.Errorf("another Handler resumes %q at %q with gaps %d and the error %v", full, plain, m, err)
			}
			if got := mine.cursor(full[:len(cursor)], 0); cursor != "" && got != cursor+mine.suffix {
				t.Errorf("%q with reported gaps 0 is %q, want %q", cursor, got, cursor+mine.suffix)
			}
		}
	}
}

func TestInvalidSuffixIsNotRemovedFromCursor(t *testing.T) {
	c := &chain{id: "0a1b2c3d"}
	full := c.cursor("2320m", 7)
	for i := range full {
		for _, text := range []string{
			full[:i], full[i:], full[:i] + "z" + full[i:], full[:i] + string(full[i]^1) + full[i+1:],
		} {
			if plain, gaps, _ := cutGaps(text); text != full && (plain != text || gaps != 0) {
				t.Errorf("cutGaps(%q) is %q with reported gaps %d, want no change", text, plain, gaps)
			}
		}
	}
	padded := "2320m!" + strings.Repeat("0", 1000) + "7." + c.id // cursors of clients are kept, so they must be short
	for _, text := range []string{
		"a!", "!", "a!b", "a!0.0a1b2c3d0000000", "2320m!7", "a!-1." + c.id, padded + sumOf(padded),
	} {
		if plain, gaps, _ := cutGaps(text); plain != text || gaps != 0 {
			t.Errorf("cutGaps(%q) is %q with reported gaps %d, want no change", text, plain, gaps)
		}
	}
}

func TestLongestCursorIsAcceptedAndLongerOnesAreNotSearched(t *testing.T) {
	epoch := strings.Repeat("e", maxEpoch)
	c := &chain{id: "0a1b2c3d", suffix: epochSign + epoch}
	plain := strings.Repeat("c", MaxCursor)
	longest := c.cursor(plain, math.MaxUint64)
	if got, gaps, err := c.parse(longest); got != plain || gaps != math.MaxUint64 || err != nil {
		t.Errorf("the cursor %q of %d bytes is refused: %v", longest, len(longest), err)
	}
	long := c.cursor(strings.Repeat("c", 16<<20), 1)
	chains := &chains{}
	chains.newest.Store(c)
	began := time.Now()
	for range 50 {
		if _, _, err := c.parse(long); err == nil || err.Code != "BAD_USER_INPUT" {
			t.Fatalf("got %v, want an invalid cursor", err)
		}
		args := make(plan.Args, argMasterRange+1)
		args[argAfter] = long
		if (&resolvers{chains: chains}).onPage(args).(dependency).page {
			t.Fatal("a page after such a cursor may be cached for ever")
		}
	}
	if took := time.Since(began); took > 200*time.Millisecond {
		t.Errorf("50 cursors of 16 MiB were refused in %v", took)
	}
}

func TestReportedGapsDoNotChangeCursorOrder(t *testing.T) {
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
			t.Fatalf("reported gaps change the order of %q and %q", a, b)
		}
	}
}

func FuzzCursorSuffix(f *testing.F) {
	c := &chain{id: "0a1b2c3d"}
	f.Add("2320m", uint64(5))
	f.Add(c.cursor("2320m", 7), uint64(0))
	f.Fuzz(func(t *testing.T, cursor string, gaps uint64) {
		plain, m, _ := cutGaps(cursor)
		if !strings.HasPrefix(cursor, plain) || m == 0 && plain == cursor && gaps == 0 {
			return
		}
		again, m, _ := cutGaps(c.cursor(cursor, blocklog.ReportedGaps(gaps)))
		if gaps != 0 && (again != cursor || uint64(m) != gaps) {
			t.Errorf("after the suffix %d was added to %q, cutGaps returns %q with gaps %d", gaps, cursor, again, m)
		}
	})
}
