package chaingql_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/chaingql/chaingql"
)

const (
	rawID    = "83dfd552e63729b472fcbcc8c45ebcc6691702558b68ec7527e1ba403a0f31a8"
	friendly = "EQCD39VS5jcptHL8vMjEXrzGaRcCVYto7HUn4bpAOg8xqB2N"
)

// friendlyForm encodes a user-friendly address bit by bit, following TEP-2.
func friendlyForm(t *testing.T, tag byte, workchain int8, a chaingql.Address, encoding *base64.Encoding) string {
	t.Helper()
	form := append([]byte{tag, byte(workchain)}, a.ID[:]...)
	// The checksum is the remainder of the form and two zero bytes, divided by x^16+x^12+x^5+1.
	var remainder uint32
	for _, b := range append(form, 0, 0) {
		for bit := 7; bit >= 0; bit-- {
			remainder = remainder<<1 | uint32(b>>bit&1)
			if remainder&0x10000 != 0 {
				remainder ^= 0x11021
			}
		}
	}
	return encoding.EncodeToString(append(form[:34], byte(remainder>>8), byte(remainder)))
}

func mustParse(t *testing.T, s string) chaingql.Address {
	t.Helper()
	a, err := chaingql.ParseAddress(s)
	if err != nil {
		t.Fatalf("ParseAddress(%q): %v", s, err)
	}
	return a
}

func TestParseAddressReadsEveryForm(t *testing.T) {
	known := mustParse(t, "0:"+rawID)
	ones := mustParse(t, "0:"+strings.Repeat("f", 64)) // + and / in base64
	for _, row := range []struct{ name, in, want string }{
		{"raw", "0:" + rawID, "0:" + rawID},
		{"raw in upper case", "0:" + strings.ToUpper(rawID), "0:" + rawID},
		{"raw in mixed case", "0:83DFd552" + rawID[8:], "0:" + rawID},
		{"raw of the masterchain", "-1:" + rawID, "-1:" + rawID},
		{"raw of the lowest workchain", "-2147483648:" + rawID, "-2147483648:" + rawID},
		{"raw of the highest workchain", "2147483647:" + rawID, "2147483647:" + rawID},
		{"friendly", friendly, "0:" + rawID},
		{"friendly, bounceable", friendlyForm(t, 0x11, 0, known, base64.URLEncoding), "0:" + rawID},
		{"friendly, not bounceable", friendlyForm(t, 0x51, 0, known, base64.URLEncoding), "0:" + rawID},
		{"friendly, of a test network", friendlyForm(t, 0x91, 0, known, base64.URLEncoding), "0:" + rawID},
		{
			"friendly, of a test network, not bounceable",
			friendlyForm(t, 0xd1, 0, known, base64.StdEncoding), "0:" + rawID,
		},
		{"friendly of the masterchain", friendlyForm(t, 0x11, -1, known, base64.URLEncoding), "-1:" + rawID},
		{"friendly of the lowest workchain", friendlyForm(t, 0x11, -128, known, base64.URLEncoding), "-128:" + rawID},
		{"friendly of the highest workchain", friendlyForm(t, 0x11, 127, known, base64.URLEncoding), "127:" + rawID},
		{"friendly in base64url", friendlyForm(t, 0x51, 0, ones, base64.URLEncoding), ones.String()},
		{"friendly in base64", friendlyForm(t, 0x51, 0, ones, base64.StdEncoding), ones.String()},
	} {
		t.Run(row.name, func(t *testing.T) {
			if got, err := chaingql.ParseAddress(row.in); err != nil || got.String() != row.want {
				t.Errorf("%s parsed as %v (%v), want %s", row.in, got, err, row.want)
			}
		})
	}
	if got := friendlyForm(t, 0x11, 0, known, base64.URLEncoding); got != friendly {
		t.Errorf("the known friendly form is %s, want %s", got, friendly)
	}
}

func TestParseAddressRejectsInvalidInput(t *testing.T) {
	known := mustParse(t, "0:"+rawID)
	ones := mustParse(t, "0:"+strings.Repeat("f", 64))
	url := friendlyForm(t, 0x51, 0, ones, base64.URLEncoding)
	mixed := strings.Replace(url, "_", "/", 1)
	if !strings.Contains(mixed, "_") {
		t.Fatalf("%s does not contain characters of both base64 alphabets", mixed)
	}
	for _, row := range []struct{ name, in string }{
		{"nothing", ""},
		{"a colon", ":"},
		{"no workchain", ":" + rawID},
		{"no colon", rawID},
		{"a short id", "0:" + rawID[1:]},
		{"a long id", "0:" + rawID + "0"},
		{"an id that is not hex", "0:g" + rawID[1:]},
		{"an id with a sign", "0:+" + rawID[1:]},
		{"two colons", "0:0:" + rawID[2:]},
		{"a workchain above 32 bits", "2147483648:" + rawID},
		{"a workchain below 32 bits", "-2147483649:" + rawID},
		{"a signed workchain", "+0:" + rawID},
		{"a negative zero", "-0:" + rawID},
		{"a padded workchain", "00:" + rawID},
		{"a workchain in hex", "0x0:" + rawID},
		{"blanks before", " 0:" + rawID},
		{"blanks after", "0:" + rawID + " "},
		{"48 characters that are not base64", "0:" + rawID[:46]},
		{"another checksum", friendly[:47] + "O"},
		{"another id under the same checksum", friendly[:10] + "A" + friendly[11:]},
		{"letters of the other case", strings.ToLower(friendly)},
		{"tag 0x00", friendlyForm(t, 0x00, 0, known, base64.URLEncoding)},
		{"tag 0x12", friendlyForm(t, 0x12, 0, known, base64.URLEncoding)},
		{"all flags", friendlyForm(t, 0xff, 0, known, base64.URLEncoding)},
		{"a short friendly form", friendly[:47]},
		{"a long friendly form", friendly + "A"},
		{"half a friendly form", friendly[:24]},
		{"padding", friendly[:46] + "=="},
		{"a line break in the middle", friendly[:24] + "\n" + friendly[25:]},
		{"both alphabets", mixed},
		{"a raw form of 48 bytes", strings.Repeat("0", 47) + ":"},
	} {
		t.Run(row.name, func(t *testing.T) {
			got, err := chaingql.ParseAddress(row.in)
			if err == nil {
				t.Fatalf("ParseAddress(%q) returned %v, want an error", row.in, got)
			}
			if got != (chaingql.Address{}) {
				t.Errorf("ParseAddress returned the address %v together with an error", got)
			}
			if len(row.in) > 20 && strings.Contains(err.Error(), row.in[:20]) {
				t.Errorf("the error repeats the input: %v", err)
			}
		})
	}
}

func TestParseAddressDetectsAnyChangedCharacter(t *testing.T) {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_+/"
	for i := range friendly {
		for _, c := range alphabet {
			changed := friendly[:i] + string(c) + friendly[i+1:]
			if got, err := chaingql.ParseAddress(changed); err == nil && changed != friendly {
				t.Errorf("ParseAddress(%q) returned %v, want an error", changed, got)
			}
		}
	}
}

func FuzzParseAddress(f *testing.F) {
	for _, s := range []string{
		"0:" + rawID, "-1:" + strings.ToUpper(rawID), "2147483647:" + rawID,
		friendly, "", ":", friendly[:24] + "\n" + friendly[25:],
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := chaingql.ParseAddress(s)
		if err != nil {
			return
		}
		again, err := chaingql.ParseAddress(a.String())
		if err != nil || again != a {
			t.Errorf("ParseAddress(%q) returned %v, whose text parsed as %v (error %v)", s, a, again, err)
		}
		if want := fmt.Sprintf("%d:%x", a.Workchain, a.ID); a.String() != want {
			t.Errorf("String of %v is not %s", a, want)
		}
		if len(s) != 48 && strings.ToLower(s) != a.String() {
			t.Errorf("ParseAddress(%q) returned %v, which is another address", s, a)
		}
	})
}

func TestParseAddressAcceptsOnlyHexDigits(t *testing.T) {
	for i := range rawID {
		for c := range 256 {
			in := []byte("0:" + rawID)
			in[2+i] = byte(c)
			got, err := chaingql.ParseAddress(string(in))
			switch isDigit := strings.Contains("0123456789abcdefABCDEF", string(rune(c))); {
			case isDigit != (err == nil):
				t.Fatalf("ParseAddress(%q) returned %v (%v)", in, got, err)
			case isDigit && got.String() != strings.ToLower(string(in)):
				t.Fatalf("ParseAddress(%q) returned %v", in, got)
			}
		}
	}
}
