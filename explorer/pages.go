package explorer

import (
	"embed"
	"html"
	"strings"
)

//go:embed pages
var pageFiles embed.FS

// nonceHere is the placeholder in a page for the nonce of the response.
const nonceHere = "{nonce}"

// page returns a page with all placeholders except the nonce replaced. It does not use
// html/template, because that package prevents dead-code elimination by the linker and adds three
// megabytes to the program of the host.
func page(name string, o Options) string {
	hidden := "hidden"
	if strings.Contains(o.Endpoint, "{project}") {
		hidden = ""
	}
	text := strings.NewReplacer("{head}", part("head"), "{bar}", part("bar")).Replace(part(name))
	text = strings.ReplaceAll(text, "{current "+name+"}", `aria-current="page"`)
	fill := []string{
		"{current live}", "", "{current graphiql}", "",
		"{hidden}", hidden,
		"{endpoint}", html.EscapeString(o.Endpoint),
		"{project}", html.EscapeString(o.Project),
		"{title}", html.EscapeString(o.Title),
		"{account}", html.EscapeString(o.Account),
	}
	for _, source := range []string{"icon.svg", "live.css", "live.js", "explorer.css", "explorer.js"} {
		fill = append(fill, "{"+source+"}", assets.name(source))
	}
	return strings.NewReplacer(fill...).Replace(text)
}

// part returns a file of the folder pages.
func part(name string) string {
	text, err := pageFiles.ReadFile("pages/" + name + ".html")
	if err != nil {
		panic(err) // impossible, because the files are embedded
	}
	return string(text)
}
