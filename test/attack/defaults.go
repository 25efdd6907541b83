package attack

import (
	"fmt"
	"strings"
)

// defaults returns attacks with documents that have default values which need far more memory than their text.
// The documents are distinct, so a naive server would cache all of them.
func defaults(full bool) []attack {
	n, sockets := 1500, 20
	if full {
		n, sockets = 6000, 63
	}
	filter := "{}"
	for range 15 {
		filter = "{id:{} seq_no:{} workchain_id:{} shard:{} gen_utime:{in:[" + times(30, "7e9,") +
			"]} chain_order:{} OR:" + filter + "}"
	}
	text := "subscription($f:BlockFilter=" + filter + "){blocks(filter:$f){id}}#own"
	unset := strings.NewReplacer("){blocks", " $on:Boolean!){blocks", "{id}", "{id @include(if:$on)}").Replace(text)
	controls := `{blockchain{account(address:"` + times(8000, "\x01") + `"){info{id}}}}#own`
	return []attack{
		{name: fmt.Sprintf("%d refused documents with default values", n), want: badInput, within: 60 * usual,
			do: eachPosted(n, unset)},
		{name: fmt.Sprintf("%d documents with control characters", n), want: fieldError, within: 60 * usual,
			do: eachPosted(n, controls)},
		subscribed(fmt.Sprintf("%d subscriptions that override default values", 31*sockets), "served", sockets,
			asJSON(map[string]any{"query": text, "variables": map[string]any{"f": map[string]any{}}})),
	}
}

// eachPosted returns a function that posts n documents one after another. In each document, it replaces
// "own" with a unique text.
func eachPosted(n int, text string) func(s *target) (last outcome, err error) {
	return func(s *target) (last outcome, err error) {
		for i := range n {
			text := strings.Replace(text, "own", fmt.Sprint("n", i), 1)
			if last, err = s.post(asJSON(map[string]any{"query": text})); err != nil {
				break
			}
		}
		return last, err
	}
}
