package explorer

import (
	"embed"
	"html"
	"strings"
)

//go:embed pages
var pageFiles embed.FS

// nonceHere is the placeholder for the nonce of a response.
const nonceHere = "{nonce}"

// page fills in a page. It does not use html/template, which would prevent dead-code elimination by
// the linker and add three megabytes to the host's program.
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

func part(name string) string {
	text, err := pageFiles.ReadFile("pages/" + name + ".html")
	if err != nil {
		panic(err) // the files are embedded
	}
	return string(text)
}
