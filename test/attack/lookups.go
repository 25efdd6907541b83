package attack

import (
	"fmt"
	"strings"
	"time"
)

// These are the hash of a block in the history, and a hash that no block has.
var (
	someHash    = hashOf(shards[len(shards)-1], firstMaster+500).String()
	unknownHash = strings.Repeat("f", 64)
)

// lookups returns documents that ask for single blocks, for their neighbors and for ranges of masterchain blocks. Their
// arguments are malformed or extreme, and many aliases ask for the most that a query may cost.
func lookups() []attack {
	var all []attack
	for _, field := range []string{"block", "prev_shard_blocks", "next_shard_blocks"} {
		ask := func(args string) string { return "{blockchain{" + field + "(" + args + "){hash seq_no}}}" }
		for _, h := range []string{
			"", " ", "0", someHash[1:], someHash + "0", "0x" + someHash[2:], someHash[1:] + "g", " " + someHash[1:],
			someHash[1:] + "\n", someHash[1:] + "\x00",
			"block/" + someHash, strings.Repeat("０", 64), strings.Repeat("é", 32), strings.Repeat("😀", 16),
			strings.Repeat("f", 20_000), "' OR 1=1 --", "../..", "%00",
		} {
			all = append(all, doc(field+" with the hash "+short(h), fieldError+"|200 LOOKUP_NOT_SUPPORTED",
				ask("hash:"+asJSON(h))))
		}
		for _, args := range []string{"hash:null", "hash:1", "hash:true", "hash:[]", "hash:{}", "hash:ONE", "hash:$h",
			"archive:true", "hash:\"\" hash:\"\"", "hash:\"\" archive:1", "hash:\"\" nothing:1"} {
			all = append(all, doc(field+" with "+args, refused, ask(args)))
		}
		all = append(all,
			doc(field+" of a known block", answered, ask("hash:"+asJSON(someHash)+" archive:true")),
			doc(field+" of an unknown block", answered, ask("hash:"+asJSON(unknownHash)+" archive:null")),
			docWith(field+" of a list by a variable", refused, "query($h:[String!])"+ask("hash:$h"),
				map[string]any{"h": []string{someHash}}),
		)
	}
	number := func(args string) string { return "{blockchain{block_by_seq_no(" + args + "){hash seq_no}}}" }
	for _, n := range []string{
		"0", "-0", "-1", "0.5", "-0.5", "3500.000001", "4294967295", "4294967296", "9007199254740993", "1e9", "1e308",
		"-1e308", "5e-324",
		strings.Repeat("9", 300), "1." + strings.Repeat("0", 2000),
	} {
		all = append(all, doc("the block with the number "+short(n), answered,
			number(`workchain:-1 shard:"8000000000000000" seq_no:`+n)))
	}
	for _, n := range []string{"1e309", "-1e309", strings.Repeat("9", 1000), "NaN", "Infinity", "null", `"1"`, "true",
		"[1]", "{}", "$n", "0x10"} {
		all = append(all, doc("the block with the invalid number "+short(n), refused,
			number(`workchain:-1 shard:"8000000000000000" seq_no:`+n)))
	}
	for _, s := range []string{"", `shard:""`, `thread:""`, "shard:null thread:null", `shard:"8"`,
		`shard:"800000000000000g"`, `shard:"-8000000000000000"`, `thread:"8000000000000000 "`,
		`shard:"` + strings.Repeat("8", 20_000) + `"`} {
		all = append(all, doc("a number in the invalid shard "+short(s), fieldError,
			number("workchain:-1 seq_no:1 "+s)))
	}
	for _, s := range []string{`shard:"0000000000000000"`, `shard:"ffffffffffffffff"`, `thread:"8000000000000000"`,
		`shard:"8000000000000000" thread:"x"`} {
		all = append(all, doc("a number in the shard "+short(s), answered, number("workchain:-2147483648 seq_no:1 "+s)))
	}
	for _, a := range []string{"archive:1", `archive:"true"`, "archive:[true]", "archive:{}", "thread:1", "thread:[]",
		"nothing:1"} {
		all = append(all, doc("a number with "+a, refused, number(`workchain:-1 shard:"8000000000000000" seq_no:1 `+a)))
	}
	for _, w := range []string{"2147483648", "1.0", `"0"`, "null", "[0]"} {
		all = append(all, doc("a number in the invalid workchain "+w, refused,
			number(`shard:"8000000000000000" seq_no:1 workchain:`+w)))
	}
	return append(all, lookupCosts([]lookupPrice{
		{"blocks by hash", `a#:block(hash:"` + someHash + `"){hash}`, 50},
		{"unknown blocks", `a#:block(hash:"` + unknownHash + `"){hash}`, 50},
		{"blocks by number", `a#:block_by_seq_no(workchain:-1 shard:"8000000000000000" seq_no:35#){hash}`, 50},
		{"predecessors", `a#:prev_shard_blocks(hash:"` + someHash + `"){hash}`, 10},
		{"successors", `a#:next_shard_blocks(hash:"` + someHash + `"){hash}`, 10},
	})...)
}

// masterRanges returns documents with ranges of times and of masterchain blocks.
func masterRanges() []attack {
	var all []attack
	times := func(args string) string { return "{blockchain{master_seq_no_range(" + args + "){start end}}}" }
	pages := func(filter string) string {
		return "{blockchain{blocks(first:50 master_seq_no_range:" + filter + "){edges{cursor}pageInfo{hasNextPage}}}}"
	}
	for _, args := range []string{
		"time_start:0", "time_end:0", "time_start:-2147483648 time_end:2147483647", "time_start:2147483647",
		"time_end:2147483647", "time_start:-1 time_end:-1",
		"time_start:null time_end:null", "archive:true", "time_start:0 time_end:0 archive:false",
	} {
		all = append(all, doc("times "+args, answered, times(args)))
	}
	all = append(all, doc("times in the wrong order", fieldError, times("time_start:2147483647 time_end:-2147483648")))
	for _, args := range []string{"time_start:2147483648", "time_end:1e9", "time_start:1.0", `time_end:"0"`,
		"time_start:[0]", "time_start:$t", "time_start:0 time_start:0", "nothing:0", "archive:1"} {
		all = append(all, doc("times "+args, refused, times(args)))
	}
	for _, filter := range []string{
		"null", "{}", "{start:null}", "{end:null}", "{start:0 end:0}", "{start:-1 end:-1}",
		"{start:-2147483648 end:2147483647}", "{start:2147483647 end:-2147483648}",
		"{start:2147483647}", "{end:2147483647}", "{start:3999 end:3999}", "{start:3001}", "{end:3001}", "{end:1}",
		"{start:1}",
	} {
		all = append(all, doc("the range "+filter, answered+"|200 CURSOR_TOO_OLD", pages(filter)))
	}
	for _, filter := range []string{
		"[]", "[{}]", "1", `""`, "true", "{start:2147483648}", "{start:1.0}", `{end:"1"}`, "{start:[1]}", "{start:{}}",
		"{nothing:1}", "{start:1 start:1}", "$f", "{start:$n}",
		"{start:{start:1}}",
	} {
		all = append(all, doc("the invalid range "+filter, refused, pages(filter)))
	}
	for _, a := range []string{"archive:1", `archive:"true"`, "archive:[true]", "archive:{}"} {
		all = append(all, doc("a range with "+a, refused, pages("{start:3500} "+a)))
	}
	for _, v := range []string{`1`, `"x"`, `{"start":"1"}`, `{"start":1.5}`, `{"start":1e100}`, `{"__proto__":{}}`,
		`{"start":[1,2]}`} {
		all = append(all, posted("a range as variable "+v, badInput, func() string {
			return `{"query":` + asJSON("query($f:BlockchainMasterSeqNoFilter)"+pages("$f")) + `,"variables":{"f":` +
				v + `}}`
		}))
	}
	all = append(all, grown("ranges in a list", "400", 32, 32<<10, func(name, want string, n int) attack {
		return posted(name, want, func() string {
			return `{"query":` + asJSON("query($f:BlockchainMasterSeqNoFilter)"+pages("$f")) +
				`,"variables":{"f":[` + strings.TrimSuffix(strings.Repeat("{},", n), ",") + `]}}`
		})
	})...)
	return append(all, lookupCosts([]lookupPrice{
		{"starts of ranges of times", "a#:master_seq_no_range(time_start:#){start end}", 16},
		{"ends of ranges of times", "a#:master_seq_no_range(time_end:#){start end}", 3},
		{"ranges of times", "a#:master_seq_no_range(time_start:# time_end:2147483647){start end}", 3},
		{"pages of ranges", "a#:blocks(master_seq_no_range:{start:3500 end:390#}){edges{node{id hash}}}", 12},
	})...)
}

// A lookupPrice is a field and the maximum number of times that a query may select it.
type lookupPrice struct {
	name, field string
	most        int
}

// lookupCosts returns documents that select each field as often as permitted, and documents that select it once more.
func lookupCosts(prices []lookupPrice) []attack {
	var all []attack
	for _, p := range prices {
		within := doc(fmt.Sprintf("%s by %d aliases", p.name, p.most), answered,
			"{blockchain{"+times(p.most, p.field)+"}}")
		within.cpu = 50 * time.Millisecond
		beyond := times(p.most, p.field) + strings.TrimPrefix(strings.ReplaceAll(p.field, "#", "9"), "a9:")
		all = append(all, within,
			doc(fmt.Sprintf("%s by %d aliases and once without", p.name, p.most), "400 LIMIT_EXCEEDED costs limit of",
				"{blockchain{"+beyond+"}}"),
			doc(p.name+" by fragments", "400 LIMIT_EXCEEDED", "{"+times(10,
				"r#:blockchain{...F}")+"}fragment F on BlockchainQuery{"+times(25, p.field)+"}"))
	}
	return all
}

// epochs returns pages, subscriptions and event streams with cursors of other epochs, and with malformed ones.
func epochs() []attack {
	var all []attack
	known := string(roundBefore(500))
	marked := known + "~" + epoch + "!5." + strings.Repeat("a", 15)
	const (
		other     = "EPOCH_CHANGED"
		malformed = "BAD_USER_INPUT"
		accepted  = "answered|served"
	)
	for _, c := range []struct{ cursor, want string }{
		{known + "~" + epoch, accepted}, {known, accepted}, {"~" + epoch, accepted},
		{known + "~other", other}, {known + "~" + strings.ToUpper(epoch), other}, {known + "~" + epoch + "0", other},
		{"~other", other},
		{known + "~" + strings.Repeat("a", 32), other}, {strings.Repeat("f", 192) + "~other", other},
		{strings.Repeat("f", 20_000) + "~other", malformed},
		{known + "~", malformed}, {known + "~" + strings.Repeat("a", 33), malformed},
		{known + "~" + strings.Repeat("a", 20_000), malformed}, {known + "~~" + epoch, malformed},
		{known + "~" + epoch + "~" + epoch, malformed}, {known + "~" + epoch + "~other", malformed},
		{known + "~é", malformed}, {known + "~ ", malformed}, {known + "~\x00", malformed},
		{known + "~%00", malformed}, {strings.Repeat("~", 20_000), malformed}, {marked, malformed},
		{known + "~" + epoch + "!", malformed},
		{known + "~" + epoch + strings.Repeat("!", 20_000), malformed}, {known + "~!", malformed},
		{"!~" + epoch, malformed + "|" + accepted}, {"é~" + epoch, malformed},
	} {
		for _, side := range []string{"first:1 after", "last:1 before"} {
			all = append(all, doc(side+" "+short(c.cursor), c.want,
				"{blockchain{blocks("+side+":"+asJSON(c.cursor)+"){edges{cursor}}}}"))
		}
		stream := `{"query":` + asJSON("subscription{blocks(after:"+asJSON(c.cursor)+"){cursor}}") + "}"
		if len(c.cursor) > 4096 {
			c.want = "LIMIT_EXCEEDED bytes of variables"
		}
		all = append(all, plain("event stream after "+short(c.cursor), c.want, func(s *target) (outcome, error) {
			return s.follow(request("POST", path, stream, "Accept: text/event-stream"))
		}))
	}
	for _, n := range []int{2, 50} {
		all = append(all, doc(fmt.Sprintf("pages of another epoch by %d aliases", n), "200 EPOCH_CHANGED",
			"{blockchain{"+times(n, `a#:blocks(first:1 after:"`+known+`~other#"){edges{cursor}}`)+"}}"))
	}
	for _, method := range []string{"POST", "QUERY"} {
		all = append(all, attack{name: method + " with 625 pages between cursors of 120 kB", want: fieldError,
			within: usual, cpu: documentCPU, do: func(s *target) (outcome, error) {
				return s.send(request(method, path, `{"query":"query($c:String){`+times(25, "a#:blockchain{...F}")+
					`}fragment F on BlockchainQuery{`+times(25, "b#:blocks(last:1 after:$c before:$c){__typename}")+
					`}","variables":{"c":"`+strings.Repeat("~"+epoch[:5]+"aa", 15_000)+"~"+epoch+`"}}`))
			}})
	}
	return all
}
