package attack

import (
	"encoding/base64"
	"strings"
)

// arguments returns documents whose arguments are invalid or extreme addresses, cursors, page sizes and
// shards.
func arguments() []attack {
	var all []attack
	zeros := strings.Repeat("0", 64)
	crc := base64.StdEncoding.EncodeToString(make([]byte, 36))
	for _, a := range []string{
		"", " ", ":", "0", "0:", ":" + zeros, "0:" + zeros[1:], "0:" + zeros + "0", "0:" + zeros[1:] + "g",
		"00:" + zeros[2:], "2147483648:" + zeros, "-2147483649:" + zeros,
		"+0:" + zeros, "0x0:" + zeros, "1e0:" + zeros, "0 :" + zeros, " 0:" + zeros, "0:" + zeros + " ",
		"0:" + zeros + "\n",
		"0:" + zeros + "\x00", "0::" + zeros, "0:0:" + zeros[2:],
		"--1:" + zeros, "٠:" + zeros, "0:" + strings.Repeat("０", 64), strings.Repeat("9", 1000) + ":" + zeros,
		"0:" + strings.Repeat("0", 20_000),
		crc, crc[:47], crc + "=", crc[:44] + "====",
		strings.Repeat("/", 48), strings.Repeat("-_+/", 12), "EQ" + strings.Repeat("é", 23), "' OR 1=1 --",
		"${jndi:ldap://127.0.0.1/a}", "{{7*7}}",
		"../../etc/passwd", "<script>alert(1)</script>", "%00", "null", "undefined", "[object Object]",
		"\u202e0:" + zeros, strings.Repeat("😀", 12),
	} {
		all = append(all, doc("address "+short(a), fieldError+"|answered",
			"{blockchain{account(address:"+asJSON(a)+"){info{id balance}}}}"))
	}
	for _, c := range []string{
		" ", "0", "m", "g", "-", "--", "zzz", "0m", strings.Repeat("0", 64), strings.Repeat("f", 64),
		strings.Repeat("f", 65),
		strings.Repeat("a", 20_000), "\x00", "0\x00", "é", "%", "%00",
		"../..", "' OR 1=1 --", "{\"$gt\":\"\"}", "NULL", "-1", "1e9", "\n", "😀", "\U0010ffff", "M", "FF",
	} {
		for _, side := range []string{"first:1 after", "last:1 before"} {
			all = append(all, doc(side+" "+short(c), "200",
				"{blockchain{blocks("+side+":"+asJSON(c)+"){edges{cursor}pageInfo{endCursor hasNextPage}}}}"))
		}
	}
	for _, suffix := range []string{"", "!1.abcdefgh1234567"} { // in the form of reported gaps
		all = append(all, posted("a cursor of 120 kB "+suffix+" by 50 aliases", answered+"|200", func() string {
			return `{"query":"query($c:String){blockchain{` + times(50, "a#:blocks(first:1 after:$c){edges{cursor}}") +
				`}}","variables":{"c":"` + strings.Repeat("a", 120_000) + suffix + `"}}`
		}))
	}
	for _, p := range []string{
		"first:0", "last:0", "first:-1", "last:-1", "first:-2147483648", "first:1 last:1", "first:1 before:\"0\"",
		"last:1 after:\"0\"", "first:0 last:0",
		"shard:\"\"", "shard:\"8\"", "shard:\"800000000000000g\"", "shard:\"80000000000000000\"",
		"shard:\"0x80000000000000\"",
		"shard:\" 8000000000000000\"", "shard:\"-8000000000000000\"",
		"shard:\"+800000000000000\"", "shard:\"８０００００００００００００００\"", "shard:\"8000_0000_0000_00\"",
	} {
		all = append(all, doc("page "+short(p), fieldError, "{blockchain{blocks("+p+"){edges{cursor}}}}"))
	}
	for _, p := range []string{
		"workchain:2147483647", "workchain:-2147483648", "workchain:1", "shard:\"0000000000000000\"",
		"shard:\"ffffffffffffffff\"", "first:51", "last:1000", "last:2147483647",
		"first:null last:null", "allow_latest_inconsistent_data:true", "after:null", "workchain:null shard:null",
	} {
		all = append(all, doc("page at the limit "+short(p), answered, "{blockchain{blocks("+p+"){edges{cursor}}}}"))
	}
	for _, p := range []string{
		"workchain:\"0\"", "workchain:1.0", "workchain:2147483648", "first:true", "first:ONE", "first:[1]", "first:{}",
		"after:1", "after:[\"\"]",
		"nothing:1", "first:$x", "shard:8000000000000000", "first:1 first:2",
	} {
		all = append(all, doc("page with invalid arguments "+short(p), refused,
			"{blockchain{blocks("+p+"){edges{cursor}}}}"))
	}
	all = append(all, doc("field errors with paths of 30 kB", fieldError,
		"{blockchain{"+times(49, strings.Repeat("a", 600)+`#:account(address:"no"){info{id}}`)+"}}"))
	return append(all, grownDoc("field errors by aliases", refused+"|"+fieldError, 2, 64, func(n int) string {
		return "{blockchain{" + times(n, `a#:account(address:"no"){info{id}}`) + "}}"
	})...)
}
