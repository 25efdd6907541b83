package plan

import (
	"math"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"
)

// texts has, for each kind of token sequence, a function that returns a document with n equal parts.
var texts = map[string]func(n int) string{
	"block strings on one line":     repeated(`{a(b:[`, `"""x""" `, `])}`),
	"block strings, one per line":   repeated(`{a(b:[`, "\"\"\"x\"\"\"\n", `])}`),
	"block strings of two lines":    repeated(`{a(b:[`, "\"\"\"x\n\"\"\" ", `])}`),
	"block strings with CR":         repeated(`{a(b:[`, "\"\"\"x\r\"\"\" ", `])}`),
	"one block string":              repeated(`{a(b:"""`, `x`, `""")}`),
	"one block string of lines":     repeated(`{a(b:"""`, "\n x", `""")}`),
	"one block string of blanks":    repeated(`{a(b:"""`, "\n ", `""")}`),
	"one block string of quotes":    repeated(`{a(b:"""`, `"" `, `""")}`),
	"one block string of escapes":   repeated(`{a(b:"""`, `\"""`, `""")}`),
	"strings before an escape":      repeated(`{a(b:[`, `"x"`, `"\u0041"])}`),
	"strings after an escape":       repeated(`{a(b:["\u0041"`, `"x"`, `])}`),
	"strings with escapes":          repeated(`{a(b:[`, `"\u0041"`, `])}`),
	"strings with surrogates":       repeated(`{a(b:[`, `"\ud83d\ude00"`, `])}`),
	"strings with braced escapes":   repeated(`{a(b:[`, `"\u{1F600}"`, `])}`),
	"one string":                    repeated(`{a(b:"`, `x`, `")}`),
	"one string of escapes":         repeated(`{a(b:"`, `\u0041`, `")}`),
	"one string of braced escapes":  repeated(`{a(b:"`, `\u{41}`, `")}`),
	"one string of backslashes":     repeated(`{a(b:"`, `\\`, `\u0041")}`),
	"one string of control chars":   repeated(`{a(b:"`, "\x01", `")}`),
	"strings of control chars":      repeated(`{a(b:[`, "\"\x01\"", `])}`),
	"one string of emoji":           repeated(`{a(b:"`, `😀`, `")}`),
	"numbers":                       repeated(`{a(b:[`, `1 `, `])}`),
	"one number":                    repeated(`{a(b:1`, `1`, `)}`),
	"one fraction":                  repeated(`{a(b:1.`, `1`, `)}`),
	"one exponent":                  repeated(`{a(b:1e`, `1`, `)}`),
	"comments":                      repeated(`{a`, "#x\n", `}`),
	"comments with fields":          repeated(`{`, "#x\na", `}`),
	"comments with descriptions":    repeated("", "#x\n\"\"#x\nquery{a}", ``),
	"one comment":                   repeated(`{a}#`, `x`, ``),
	"blank lines":                   repeated(`{a`, "\r\n", `}`),
	"commas":                        repeated(`{a`, `,`, `}`),
	"byte order marks":              repeated(`{a`, "\ufeff", `}`),
	"fields":                        repeated(`{`, `a `, `}`),
	"aliases":                       repeated(`{`, `a:b `, `}`),
	"one name":                      repeated(`{a`, `x`, `}`),
	"arguments":                     repeated(`{a(`, `b:1 `, `)}`),
	"object fields":                 repeated(`{a(b:{`, `c:1 `, `})}`),
	"directives":                    repeated(`{a`, `@b`, `}`),
	"variables":                     repeated(`query(`, `$a:B `, `){a}`),
	"types":                         repeated(`query($a:`, `[`, ``),
	"operations":                    repeated(``, `query{a}`, ``),
	"fragments":                     repeated(``, `fragment a on b{c}`, ``),
	"spreads":                       repeated(`{`, `...a `, `}`),
	"inline fragments":              repeated(`{`, `...{a}`, `}`),
	"selection sets without an end": repeated(``, `{a`, ``),
	"lists without an end":          repeated(`{a(b:`, `[`, ``),
	"bangs":                         repeated(`query($a:B`, `!`, `){a}`),
	"dots":                          repeated(`{`, `...`, `}`),
}

func repeated(before, part, after string) func(n int) string {
	return func(n int) string { return before + strings.Repeat(part, n) + after }
}

// growth returns the ratio between the processor times of two functions: the one that prepare returns for 16n, and
// the one that it returns for n. Each is called three times, and the shortest time counts.
func growth(n int, prepare func(n int) (do func())) float64 {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	shortest := func(do func()) time.Duration {
		runtime.GC()
		best := time.Duration(math.MaxInt64)
		for range 3 {
			start := processorTime()
			do()
			best = min(best, processorTime()-start)
		}
		return max(best, time.Microsecond)
	}
	small, large := prepare(n), prepare(16*n)
	return float64(shortest(large)) / float64(shortest(small))
}

// quadratic is the growth from which work is considered quadratic. Linear work grows by a factor of 16, quadratic work
// by a factor of 256.
const quadratic = 64

func TestParsingTakesLinearTime(t *testing.T) {
	if raceEnabled {
		t.Log("not measured: times are not comparable under the race detector")
		return
	}
	for name, text := range texts {
		n := 8 << 10 / (len(text(1)) - len(text(0)))
		grown := 0.0
		for tries := 0; tries == 0 || tries < 3 && grown >= quadratic; tries++ {
			grown = growth(n, func(n int) func() {
				text, limits := text(n), Limits{}.withDefaults()
				return func() {
					if doc, _, err := parseDocument(text, limits); err == nil {
						limits.check(doc)
					}
				}
			})
		}
		t.Logf("%-30s %.1f", name, grown)
		if grown >= quadratic {
			t.Errorf("%s: parsing a text 16 times as long takes %.0f times as long, want less than 64", name, grown)
		}
	}
}

func TestErrorInBlockStringIsLocatedAtItsBeginning(t *testing.T) {
	c := testCache(t, defaultLimits)
	for text, want := range map[string]Location{
		`{echo(i:"""x""")}`:                                  {1, 9},
		`{a:echo(s:"""x""") echo(i:"""y""")}`:                {1, 27},
		"{a:echo(s:\"\"\"x\ny\"\"\") echo(i:\"\"\"z\"\"\")}": {2, 14},
		"{a:echo(s:\"\"\"x\r\ny\"\"\")\n b:echo(s:\"\"\"é\"\"\") echo(i:\"\"\"\n\n\"\"\")}": {3, 27},
		"{\n a:echo(s:\"\"\"x\"\"\")\n echo(i:\n \"\"\"y\"\"\")}":                           {4, 2},
		"#\r{echo(i:\"\"\"y\"\"\")}":                                                        {2, 9},
	} {
		if _, errs := c.Prepare(text, "", nil); len(errs) != 1 || len(errs[0].Locations) != 1 ||
			errs[0].Locations[0] != want {
			t.Errorf("%q: got %v, want an error at %v", text, errs, want)
		}
	}
}
