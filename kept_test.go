package chaingql_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/chaingql/chaingql"
)

// Subscriptions with variables of their own keep answers of their own. However large these are and however many blocks
// are not taken, the heap grows by no more than is counted.
func TestAnswersAboutBlocksThatNobodyTakesStayWithinSubscriptionBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit, readers, blocks = 16 << 20, 800, 20
		var fields strings.Builder
		for i := range 40 {
			fmt.Fprintf(&fields, "a%d:id b%d:id ", i, i)
		}
		document := "subscription($f:BlockFilter){blocks(filter:$f){" + fields.String() + "}}"
		chain := referenceChain(t)
		h, _ := newHandler(t, chain, chaingql.Options{
			Limits: chaingql.Limits{SubscriptionBytes: limit, Aliases: 100}})
		before := heap()
		for i := range readers {
			own := map[string]any{"f": map[string]any{"seq_no": map[string]any{"notIn": []any{json.Number(fmt.Sprint(i))}}}}
			stop, err := h.Subscribe(document, own)
			if err != nil {
				t.Fatal(err)
			}
			defer stop()
		}
		synctest.Wait()
		for n := range blocks {
			if err := chain.Append(masterBlock(uint32(803+n), fmt.Sprintf("%064x", n))); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		count, held := h.Retained()
		grown := int(heap() - before)
		t.Logf("%d subscriptions, counted %d bytes, grown by %d", count, held, grown)
		if most := held + limit/8; grown > most*5/4 || held > limit-limit/8 { // the race detector adds some
			t.Errorf("%d subscriptions that take nothing keep %d bytes, %d are counted", count, grown, most)
		}
	})
}
