package backendtest

import (
	"strings"

	"github.com/chaingql/chaingql"
)

// epoch returns the Backend's epoch, or "" if it has none. The rule fails if the epoch is invalid.
func (t *trial) epoch() string {
	e, ok := t.Backend.(chaingql.Epocher)
	if !ok {
		return ""
	}
	epoch := e.Epoch()
	const letters = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	if len(epoch) > 32 || strings.Trim(epoch, letters) != "" {
		t.Fatalf("Epoch returned %q: it must return 1 to 32 letters and digits, or nothing", epoch)
	}
	return epoch
}

// epochFitsCursors checks the epoch and that no cursor contains the character that separates a cursor from its epoch.
func epochFitsCursors(t *trial) {
	epoch := t.epoch()
	t.fill(40, 0)
	if now := t.epoch(); now != epoch {
		t.Fatalf("Epoch returned %q and, after blocks were appended, %q: it must change only if the chain is replaced",
			epoch, now)
	}
	if epoch == "" {
		return
	}
	for _, b := range t.page(chaingql.BlocksQuery{First: 40}) {
		if strings.Contains(string(b.Cursor), "~") {
			t.Fatalf("Blocks returned cursor %q: with an epoch, a cursor must not contain \"~\"", b.Cursor)
		}
	}
}

// epochSurvivesRestart restarts a chain that has replaced another one. reopen compares the epochs.
func epochSurvivesRestart(t *trial) {
	t.fill(40, 0)
	if t.Append != nil && t.Replace != nil {
		epoch, after := t.existingEpoch(), t.stored[0].Cursor
		t.replace(1, 40)
		t.grow(40)
		t.expectReplacedPage(after, epoch)
	}
	t.reopen()
}
