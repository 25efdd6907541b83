package attack

import (
	"strings"
	"time"
)

// queryCosts returns documents that need many backend calls but exceed no limit on their syntax. The server
// must answer documents that need up to 50 calls, which read up to 2,500 blocks, and refuse all others.
func queryCosts() []attack {
	const tooExpensive = "400 LIMIT_EXCEEDED costs calls limit of 50"
	var all []attack
	for _, s := range []struct{ name, before, each, after string }{
		{"pages of 50", "{blockchain{",
			"a#:blocks(last:50){edges{node{id hash seq_no shard chain_order gen_utime workchain_id}cursor}}", "}}"},
		{"pages of 50 from the start", "{blockchain{", `a#:blocks(first:50 after:""){edges{node{id hash}cursor}}`,
			"}}"},
		{"different pages", "{blockchain{", "a#:blocks(first:5#){edges{node{id}}}", "}}"},
		{"pages of a workchain", "{blockchain{", "a#:blocks(workchain:# last:50){edges{node{id}}}", "}}"},
		{"pages of a shard that does not exist", "{blockchain{",
			`a#:blocks(shard:"8000000000000000" workchain:# first:50){edges{node{id}}}`, "}}"},
		{"roots", "{", "a#:blockchain{blocks(last:50){edges{node{id}}}}", "}"},
		{"infos", "{", "a#:info{version time latency blocksLatency lastBlockTime endpoints rempEnabled}", "}"},
	} {
		for _, n := range []int{10, 25, 50} {
			all = append(all, doc(s.name+" by "+itoa(n)+" aliases", answered, s.before+times(n, s.each)+s.after))
		}
		// A field without an alias adds one more call.
		_, bare, _ := strings.Cut(s.each, ":")
		all = append(all, doc(s.name+" by 50 aliases and a field without alias", tooExpensive,
			s.before+times(50, s.each)+strings.ReplaceAll(bare, "#", "1")+s.after))
	}
	for _, s := range []struct{ name, each string }{ // one call returns all balances
		{"different accounts", `a#:account(address:"#:` + strings.Repeat("1", 64) + `"){info{balance}}`},
		{"one account", `a#:account(address:"` + richAddress + `"){info{balance(format:DEC)}}`},
	} {
		for _, n := range []int{10, 25, 50} {
			all = append(all, doc(s.name+" by "+itoa(n)+" aliases", answered, "{blockchain{"+times(n, s.each)+"}}"))
		}
	}
	// Because fragments multiply fields, a document with few aliases can need many calls.
	for _, r := range []struct {
		roots, pages int
		want         string
	}{{5, 10, answered}, {3, 17, tooExpensive}, {10, 6, tooExpensive}, {20, 20, tooExpensive}} {
		text := "{" + times(r.roots, "a#:blockchain{...P}") + "}fragment P on BlockchainQuery{" +
			times(r.pages, "b#:blocks(last:50){edges{cursor}}") + "}"
		all = append(all, doc(itoa(r.roots)+" roots of "+itoa(r.pages)+" pages", r.want, text))
	}
	pages := "{blockchain{" + times(50, "a#:blocks(last:$n){edges{cursor}}") + "blocks(last:$n){edges{cursor}}}}"
	all = append(all,
		docWith("51 pages by variables", tooExpensive, "query($n:Int)"+pages, map[string]int{"n": 50}),
		docWith("51 pages of a block by variables", tooExpensive, "query($n:Int)"+pages, map[string]int{"n": 1}),
		doc("51 pages of which 50 are skipped", answered,
			"{blockchain{...P@skip(if:true)blocks(last:50){edges{cursor}}}}fragment P on BlockchainQuery{"+times(50,
				"a#:blocks(last:50){edges{cursor}}")+"}"),
		doc("a page by fragments", answered, "{blockchain{blocks(last:50){edges{"+strings.Repeat("...F ", 25)+
			"}}}}fragment F on BlockchainBlocksEdge"+
			"{node{id hash seq_no shard chain_order gen_utime workchain_id}}"),
		doc("a page of the largest size", answered, "{blockchain{blocks(first:2147483647){edges{cursor}}}}"),
		doc("a page of fields by aliases", answered, "{blockchain{blocks(last:50){edges{node{"+times(50,
			"a#:id ")+"}}}}}"),
		doc("the complete schema", answered,
			"{__schema{types{name description fields{name description "+
				"args{name description type{name ofType{name ofType{name}}}}"+
				"type{name ofType{name ofType{name}}}}}}}"),
		doc("25 pages of 24 fields by aliases", answered, "{blockchain{"+times(25,
			"a#:blocks(last:50){edges{node{...N}}}")+"}}fragment N on BlockchainBlock{"+times(24,
			"b#:chain_order ")+"}"),
	)
	for i := range all {
		all[i].cpu = 50 * time.Millisecond
	}
	return all
}
