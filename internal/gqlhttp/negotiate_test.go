package gqlhttp

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"mime"
	"net/http"
	"strings"
	"testing"
)

// Headers are read before a client is authorized, so even the worst of them must cost little.
func TestNoHeaderMakesNegotiationAllocate(t *testing.T) {
	fill := func(head, item string) string {
		return head + strings.Repeat(item, (maxAccept-len(head))/len(item))
	}
	continued := strings.Builder{}
	for i := 0; continued.Len() < maxAccept-40; i++ {
		fmt.Fprintf(&continued, ";%c%c*0*=1'", 'a'+i%26, 'a'+i/26)
	}
	for _, header := range []string{
		JSON + continued.String(), Multipart + continued.String(), fill("", "*/*;q=9,"), fill("", "*/*;q=.,"),
		fill("", "*/*;q=x,"), fill("*/*;q=", "9"), fill("*/*;q=0.", "0"), fill(JSON, ";q=0"), fill(JSON, ";a=b"),
		fill(JSON, `;a="b"`), fill(JSON+`;a="`, `\\`), fill("", ",\t"), fill("", "*/*;q=NaN,"), fill("", "x/x;q,"),
		fill(JSON, " ;"), fill("", JSON+","), fill("", EventStream+";q=0.5,"),
		fill("", JSON+";q=0."+strings.Repeat("0", 320)+"1,"), fill("", JSON+";q="+strings.Repeat("9", 310)+","),
	} {
		if len(header) > maxAccept {
			t.Fatalf("%.40s: %d bytes", header, len(header))
		}
		accept := []string{header}
		if got := testing.AllocsPerRun(10, func() { Negotiate(accept) }); got > 3 {
			t.Errorf("Accept %.40s...: %v allocations, want at most 3", header, got)
		}
		content := http.Header{"Content-Type": {header[:min(len(header), 256)]}}
		if got := testing.AllocsPerRun(10, func() { IsJSON(content) }); got > 0 {
			t.Errorf("Content-Type %.40s...: %v allocations, want none", header, got)
		}
	}
	if media, _ := Negotiate([]string{fill("", "*/*,")}); media != JSON {
		t.Errorf("a header of %d bytes accepts %q", maxAccept, media)
	}
	if media, stream := Negotiate([]string{fill("", "*/*,"), "x"}); media != "" || stream != "" {
		t.Errorf("headers of more than %d bytes accept %q and %q, want nothing", maxAccept, media, stream)
	}
}

// Package mime reads parameters the same way, unless they are repeated or in the form of RFC 2231, and it removes
// backslashes.
func TestParametersAreThoseOfPackageMIME(t *testing.T) {
	parts := []string{";", ";", "q", "charset", "=", "=", "0.5", "utf-8", `"`, `"`, " ", "\t", ",", "/", "@", "é", "A",
		"{"}
	g := rand.New(rand.NewPCG(1, 2))
	valid := 0
	for range 300_000 {
		text := "application/json"
		for range g.IntN(12) {
			text += parts[g.IntN(len(parts))]
		}
		name, rest := cutMedia(text)
		var ok, repeated bool
		got := map[string]string{}
		for name, value := range parameters(rest, &ok) {
			name = strings.ToLower(name)
			_, known := got[name]
			repeated = repeated || known
			got[name] = value
		}
		media, want, err := mime.ParseMediaType(text)
		if repeated || media != JSON && err == nil {
			continue
		}
		if ok = ok && equalFold(name, JSON); ok != (err == nil) || ok && !maps.Equal(got, want) {
			t.Fatalf("%q: got %q and %v, but package mime returns %q and %v", text, got, ok, want, err)
		}
		if ok && len(got) > 0 {
			valid++
		}
	}
	if valid < 60 {
		t.Errorf("only %d texts had valid parameters", valid)
	}
}
