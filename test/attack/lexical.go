package attack

import (
	"fmt"
	"strings"
)

// lexical returns documents with lexical errors.
func lexical() []attack {
	arg := func(value string) string { return "{blockchain{account(address:" + value + "){info{id}}}}" }
	num := func(value string) string { return "{blockchain{blocks(first:" + value + "){edges{cursor}}}}" }
	all := []attack{
		doc("BOM at the start", answered, "\ufeff{info{version}}"),
		doc("BOM in the middle", refused+"|"+answered, "{info\ufeff{version}}"),
		doc("BOM in a name", refused+"|"+answered, "{in\ufefffo{version}}"),
		doc("two BOMs", refused+"|"+answered, "\ufeff\ufeff{info{version}}"),
		doc("line separators", unparsable, "{info\u2028{version}}"),
		doc("a no-break space", unparsable, "{info\u00a0{version}}"),
		doc("a zero-width space", unparsable, "{in\u200bfo{version}}"),
		doc("right to left", unparsable, "{\u202einfo{version}}"),
		doc("full-width letters", unparsable, "{ｉｎｆｏ{version}}"),
		doc("a Cyrillic letter", unparsable, "{\u0456nfo{version}}"),
		doc("an emoji", unparsable, "{😀}"), doc("the last rune", unparsable, "{\U0010ffff}"),
		doc("a noncharacter", unparsable, "{\ufffe}"),
		doc("a combining mark", unparsable, "{info\u0301{version}}"),
		doc("carriage returns alone", answered, "{info\r{version}\r}"),
		doc("DEL", unparsable, "{info\x7f{version}}"),
		doc("NUL in a comment", refused+"|"+answered, "{info{version}}#\x00"),
		doc("Unicode in a comment", answered, "{info{version}}#ü😀\u2028"),
		doc("NUL in a string", refused+"|"+fieldError, arg("\"\x00\"")),
		doc("NUL escaped", fieldError, arg(`"\u0000"`)),
	}
	for c := range rune(0x20) {
		if c != '\t' && c != '\n' && c != '\r' {
			all = append(all, doc(fmt.Sprintf("control character %#02x", c), unparsable,
				"{info"+string(c)+"{version}}"))
		}
	}
	for _, s := range []string{
		`"`, `"a`, "\"a\nb\"", "\"a\rb\"", `"\`, `"\"`, `"\q"`, `"\x41"`, `"\u"`, `"\u1"`, `"\u123"`, `"\uzzzz"`,
		`"\u{}"`, `"\u{110000}"`, `"\u{d800}"`,
		`"\ud800"`, `"\udc00"`, `"\udc00\ud800"`, `"\ud800\ud800"`, `"\ud800x\udc00"`, `"\ud83d\u0041"`, `"\U0001F600"`,
		`"\0"`, `"\'"`, `'a'`, "`a`",
		`"""`, `""""`, `"""""`, `"""a`, `"""a"`, `"""a""`, `"""\"""`, `"""a""""`, `"""a\`,
		`"""` + strings.Repeat(`\"""`, 500),
	} {
		all = append(all, doc("string "+short(s), unparsable+"|400 BAD", arg(s)))
	}
	for _, s := range []string{
		`""`, `""""""`, `"""` + "\n" + `"""`, `"""` + strings.Repeat(" \n", 2000) + `"""`,
		`"""` + strings.Repeat("\t", 9000) + `a"""`,
		`"""\n\u0041"""`, `"\ud83d\ude00"`, `"\u{1F600}"`, `"😀"`,
	} {
		all = append(all, doc("good string "+short(s), fieldError, arg(s)))
	}
	for _, s := range []string{
		"01", "00", "-", "-a", "+1", "1.", ".5", "1.e1", "1e", "1e+", "1.0.0", "0x10", "0b1", "1_000", "1a", "1e1a",
		"1.0a", "0-1", "--1", "1-", "∞", "१",
		"1$", "1@", "NaNa:1)", "-0.e1", "9" + strings.Repeat("_", 9),
	} {
		all = append(all, doc("number "+short(s), refused, num(s)))
	}
	for _, s := range []string{
		"2147483648", "-2147483649", "9223372036854775808", "1e9", "1.0", "1e400", "1e-400", "1e999999999",
		"-1e999999999", "-0.0", "NaN", "Infinity",
		strings.Repeat("9", 30_000), "0." + strings.Repeat("9", 30_000), "1e" + strings.Repeat("9", 30_000),
		"1." + strings.Repeat("0", 20_000) + "e1",
	} {
		all = append(all, doc("number out of range "+short(s), refused, num(s)))
	}
	for _, s := range []string{
		"$", "@", "!", "&", "|", "=", ":", ".", "..", "....", ".....", "*", "^", "%", "\\", "/", "//", "/*a*/", "<",
		">", "?", "~", ";", "'", "`", "-", "+", "[", "]",
		"(", ")", "{$a}", "{...$a}", "{a($b:1)}", "{a(b:$)}", "{a(b:$1)}", "{a(b:@c)}", "{1}", "{\"a\"}", "{true}",
		"{null}", "{...1}", "query$",
		"query A B{a}", "query($a){a}",
		"query($a:){a}", "query($:Int){a}", "query($a:Int=){a}", "query($a:Int=$b){a}", "query($a:Int!!){a}",
		"query($a:!Int){a}", "query($a:Int,$a:Int){info{version}}",
	} {
		all = append(all, doc("text "+short(s), refused, s))
	}
	for _, s := range []struct{ name, before, each, after string }{
		{"commas", "{info{version}}", ",", ""}, {"white space", "{info{version}}", " ", ""},
		{"comments", "{info{version}}", "#\n", ""},
		{"one comment", "{info{version}}#", "x", ""}, {"a name", "{", "x", "}"},
		{"an argument's name", "{info(", "x", ":1){version}}"},
		{"a type's name", "query($a:", "X", "){info{version}}"},
		{"a variable's name", "query($", "x", ":Int){info{version}}"},
		{"a directive's name", "{info@", "x", "{version}}"}, {"a string", `{a(b:"`, "x", `")}`},
		{"a string of escapes", `{a(b:"`, `\u0041`, `")}`},
		{"a block string of lines", `{a(b:"""`, "\n  x", `""")}`},
		{"a block string that grows", `{a(b:"""`, "\\\"\"\"", `""")}`},
		{"unterminated strings", "{a(b:", `"x `, ")}"},
		{"block strings on one line", "{a(b:[", `"""x""" `, "])}"},
		{"strings before an escape", "{a(b:[", `"x"`, `"\u0041"])}`},
		{"empty strings", "{a(b:", `""`, ")}"},
		{"numbers", "{a(b:[", "1 ", "])}"},
		{"dots", "{", "...", "}"},
		{"dollars", "", "$", ""},
		{"bangs", "query($a:Int", "!", "){info{version}}"},
		{"ats", "{info", "@", "{version}}"},
		{"ampersands", "", "&", ""},
		{"bars", "", "|", ""},
		{"colons", "{a", ":", "b}"}, {"emoji", "{a(b:\"", "😀", "\")}"}, {"NULs", "{", "\x00", "}"},
		{"BOMs", "", "\ufeff", "{info{version}}"},
	} {
		all = append(all, grownDoc(s.name, refused+"|413", 512, 1<<18, func(n int) string {
			return s.before + times(n, s.each) + s.after
		})[3:]...)
	}
	for i := range all {
		all[i].want += "|413 LIMIT_EXCEEDED"
	}
	return all
}
