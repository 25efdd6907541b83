package tonlite

import (
	"errors"
	"testing"

	"github.com/chaingql/chaingql"
)

// TestNonCanonicalCursorIsRejected requires that each position has only one valid cursor, because
// cursors are compared as strings.
func TestNonCanonicalCursorIsRejected(t *testing.T) {
	for _, good := range []chaingql.Cursor{
		"119m", "7ffffffffm", "1190011901", chaingql.ChainOrder(-2, 0x4<<60, 7, 25),
	} {
		if _, err := parseCursor(good); err != nil {
			t.Errorf("valid cursor %q: got error %v", good, err)
		}
	}
	for _, bad := range []chaingql.Cursor{
		"m", "9", "119", "119M", "119mm", "119m0", "11Am", "2019m", "8100000000m",
		"119-0011901", "1190011901x", "119001190", "11900119", "119001199",
	} {
		if _, err := parseCursor(bad); !errors.Is(err, chaingql.ErrBadCursor) {
			t.Errorf("invalid cursor %q: got error %v, want ErrBadCursor", bad, err)
		}
	}
}
