package plan

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chaingql/chaingql/internal/testkit"
)

func TestFloatsHaveTheValueOfTheirText(t *testing.T) {
	for text, want := range map[string]float64{
		"0": 0, "-0": 0, "0.0": 0, "0e999": 0, "5": 5, "-5": -5, "1.5": 1.5, "100": 100, "0.001": 0.001, "1e3": 1000,
		"1E+3": 1000, "1e-3": 0.001, "12.5e1": 125, "9007199254740993": 9007199254740992,
		"1.7976931348623157e308": math.MaxFloat64, "0.00017976931348623157e312": math.MaxFloat64,
		"1e-306": 1e-306, "2.5e-307": 2.5e-307, "1e-308": 0, "5e-324": 0, "-1e-310": 0, "1e-99999999999999999999": 0,
		"0." + strings.Repeat("0", 400) + "1e401": 1, "1" + strings.Repeat("0", 400) + "e-400": 1,
		"0.1" + strings.Repeat("2", 400): 0.1222222222222222222,
	} {
		if got, err := parseFloat(text); got != want || err != nil {
			t.Errorf("parseFloat(%.40q) = %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{
		"1.8e308", "-1.8e308", "1e309", "1e99999999999999999999", "1" + strings.Repeat("0", 400),
	} {
		if got, err := parseFloat(text); err == nil {
			t.Errorf("parseFloat(%.40q) = %v, want an error", text, got)
		}
	}
}

func TestFloatsAgreeWithStrconv(t *testing.T) {
	for seed := range testkit.Seeds(t, testkit.RaceSample(t, 100_000)) {
		r := rand.New(rand.NewPCG(seed, 1))
		digits := fmt.Sprintf("%019d", r.Int64())[:1+r.IntN(17)] + strings.Repeat(fmt.Sprint(r.IntN(10)), r.IntN(9))
		point := r.IntN(len(digits))
		text := digits[:point] + "." + digits[point:] + fmt.Sprintf("e%d", r.IntN(600)-295)
		if point == 0 {
			text = "0" + text
		}
		got, err := parseFloat(text)
		want, wantErr := strconv.ParseFloat(text, 64)
		off := 0.0 // permitted difference, in units in the last place
		if len(digits) > maxFloatDigits {
			off = 1
		}
		ulp := math.Abs(math.Nextafter(want, math.Inf(1)) - want)
		if (err == nil) != (wantErr == nil) || err == nil && math.Abs(got-want) > off*ulp {
			t.Fatalf("parseFloat(%q) = %v, %v, want %v, %v", text, got, err, want, wantErr)
		}
	}
}

// A document or a body can contain thousands of numbers, and each counts as one value.
func TestEveryFloatIsParsedInSimilarTime(t *testing.T) {
	cost := func(text string) time.Duration {
		best := time.Hour
		for range 20 {
			start := time.Now()
			for range 100 {
				_, _ = parseFloat(text)
			}
			best = min(best, time.Since(start))
		}
		return best
	}
	usual := cost("123456")
	for _, text := range []string{
		"1e-310", "5e-324", "4.9406564584124654e-324", "2.2250738585072011e-308", "1e-307", "9e-308", "1.7e308",
		"9007199254740993e22", "179769313486231580793728971405301e276", // halfway between two numbers
		"89255.000000000000000001e-310", "1.00000000000000011102230246251565404e300",
		"9e308", "-2e308", "1797693134862315808e290", "1797693134862315807e290", "18014398509481986e292",
	} {
		if took := cost(text); took > 30*usual { // strconv.ParseFloat: 500 times
			t.Errorf("%s takes %v, and 123456 takes %v", text, took/100, usual/100)
		}
	}
}
