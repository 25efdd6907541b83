package plan

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/vektah/gqlparser/v2/ast"
)

// A generator creates random documents, most of which are valid. Most response names stand for one field with one
// list of arguments, so that fields with equal names can be merged. A few response names stand for different
// fields, and then the document must be rejected.
type generator struct {
	*rand.Rand
	s         *Schema
	aliases   map[string]string // aliases by field name and arguments
	plain     map[string]string // arguments by field name, of fields without an alias
	fragments []*fragment
	variables []variableText
	left      int // number of fields that may still be written
	// foreign marks a document for which graphql-go is known to return a wrong response.
	foreign bool
}

type fragment struct{ name, on, text string } // text is empty while the fragment is generated

type variableText struct {
	name, typ string
	value     any
	given     bool
}

// one reports true with a probability of percent/100.
func (g *generator) one(percent int) bool { return g.IntN(100) < percent }

// document returns a random document and the values of its variables.
func (g *generator) document() (string, map[string]any) {
	g.aliases, g.plain, g.fragments, g.variables = map[string]string{}, map[string]string{}, nil, nil
	g.left, g.foreign = 4+g.IntN(30), false
	body := g.set(g.s.types.Query, 0)
	head := "query"
	if g.one(50) {
		head += " Q"
	}
	given := map[string]any{}
	for i, v := range g.variables {
		if i == 0 {
			head += "("
		}
		head += v.name + ": " + v.typ + " "
		if v.given {
			given[v.name[1:]] = v.value
		}
	}
	if len(g.variables) > 0 {
		head += ")"
	}
	text := head + body
	for _, f := range g.fragments {
		text += "\nfragment " + f.name + " on " + f.on + " " + f.text
	}
	return text, given
}

func (g *generator) set(def *ast.Definition, depth int) string {
	var parts []string
	for range 1 + g.IntN(4) {
		parts = append(parts, g.selection(def, depth))
	}
	if g.one(15) { // repeat a selection
		parts = append(parts, parts[g.IntN(len(parts))])
	}
	return "{ " + strings.Join(parts, " ") + " }"
}

func (g *generator) selection(def *ast.Definition, depth int) string {
	g.left--
	if g.left > 0 && depth < 7 {
		switch n := g.IntN(100); {
		case n < 14:
			on := g.overlapping(def)
			return "... on " + on.Name + g.directives() + " " + g.set(on, depth+1)
		case n < 18:
			return "..." + g.directives() + " " + g.set(def, depth+1)
		case n < 30:
			if name := g.spread(def, depth); name != "" {
				return "..." + name + g.directives()
			}
		}
	}
	if def.Kind == ast.Union || g.one(8) {
		return "__typename" + g.directives()
	}
	if def.Name == "Query" && g.one(4) {
		return g.introspection()
	}
	var fields []*ast.FieldDefinition
	for _, f := range def.Fields {
		composite := g.s.types.Types[f.Type.Name()].IsCompositeType()
		if !strings.HasPrefix(f.Name, "__") && (!composite || g.left > 0 && depth < 7) {
			fields = append(fields, f)
		}
	}
	return g.field(fields[g.IntN(len(fields))], depth)
}

// introspection returns an introspection field. It selects only fields of the specification of 2018, which
// graphql-go implements, and lists that graphql-go returns in a fixed order.
func (g *generator) introspection() string {
	name := []string{"Color", "Node", "Pet", "Filter", "Nothing"}[g.IntN(5)]
	if g.one(50) {
		return "__schema { queryType { name kind } " +
			"subscriptionType { name fields { isDeprecated name } } mutationType { name } }"
	}
	return fmt.Sprintf("t%s: __type(name: %q) { kind name description ofType { name } }", name, name)
}

func (g *generator) overlapping(def *ast.Definition) *ast.Definition {
	possible := g.s.possible(def)
	candidates := []*ast.Definition{def}
	for _, name := range []string{"Node", "Named", "Pet", "Cat", "Dog", "Person"} {
		other := g.s.types.Types[name]
		if slices.ContainsFunc(g.s.possible(other), func(o *ast.Definition) bool {
			return slices.Contains(possible, o)
		}) {
			candidates = append(candidates, other)
		}
	}
	return candidates[g.IntN(len(candidates))]
}

func (g *generator) spread(def *ast.Definition, depth int) string {
	on := g.overlapping(def)
	for _, f := range g.fragments {
		if f.on == on.Name && f.text != "" && g.one(60) {
			return f.name
		}
	}
	if len(g.fragments) > 4 {
		return ""
	}
	f := &fragment{name: "F" + strconv.Itoa(len(g.fragments)), on: on.Name}
	g.fragments = append(g.fragments, f)
	f.text = g.set(on, depth+1)
	return f.name
}

func (g *generator) directives() string {
	text := ""
	for _, name := range []string{" @skip", " @include"} {
		if !g.one(8) {
			continue
		}
		on := strconv.FormatBool(g.one(50))
		switch g.IntN(4) {
		case 0:
			on = g.variable("Boolean!", "", 0)
		case 1:
			on = g.variable("Boolean", " = "+on, 0)
		}
		text += name + "(if: " + on + ")"
	}
	return text
}

func (g *generator) field(f *ast.FieldDefinition, depth int) string {
	var args []string
	for _, a := range f.Arguments {
		if required := a.Type.NonNull && a.DefaultValue == nil; required || g.one(35) {
			args = append(args, a.Name+": "+g.input(a.Type, a.DefaultValue != nil, 0, true))
		}
	}
	text := ""
	if len(args) > 0 {
		text = "(" + strings.Join(args, ", ") + ")"
	}
	name := f.Name
	plain, used := g.plain[name]
	switch key := name + text; {
	case !used && g.one(70):
		g.plain[name] = text
	case used && (plain == text || g.one(50)):
		text = plain
	case g.one(3):
		name = "a0: " + name // sometimes cause a conflict
	case g.aliases[key] == "":
		g.aliases[key] = "a" + strconv.Itoa(len(g.aliases))
		fallthrough
	default:
		name = g.aliases[key] + ": " + name
	}
	name += text + g.directives()
	if def := g.s.types.Types[f.Type.Name()]; def.IsCompositeType() {
		name += " " + g.set(def, depth+1)
	}
	return name
}

// input returns a random value of type t, either as a literal or as a variable that has the value.
func (g *generator) input(t *ast.Type, hasDefault bool, depth int, top bool) string {
	if g.one(30) {
		typ, def := t.String(), ""
		switch {
		case !t.NonNull && g.one(20):
			typ += "!"
		case t.NonNull && g.one(15):
			typ = strings.TrimSuffix(typ, "!")
			def = " = " + g.literal(t, depth+1)
		case g.one(20):
			def = " = " + g.literal(t, depth+1)
		case t.NonNull && hasDefault && g.one(30):
			typ = strings.TrimSuffix(typ, "!") // null is then a field error
			g.foreign = true
		}
		before := len(g.variables)
		name := g.variable(typ, def, depth)
		if v := g.variables[before]; hasDefault || !top {
			// graphql-go uses the default although null was passed, and does not use the default if
			// a variable in an object is absent.
			g.foreign = g.foreign || !v.given || v.value == nil
		}
		return name
	}
	if !t.NonNull && g.one(6) {
		return "null" // graphql-go rejects the document
	}
	return g.literal(t, depth)
}

// variable declares a variable with a value and returns its name.
func (g *generator) variable(typ, def string, depth int) string {
	t := typeRef(typ)
	v := variableText{name: "$v" + strconv.Itoa(len(g.variables)), typ: typ + def,
		given: t.NonNull && def == "" || g.one(70)}
	g.variables = append(g.variables, v)
	v.value = g.json(t, depth)
	if !t.NonNull && g.one(12) {
		v.value = nil
		// graphql-go treats null as absent and uses the default.
		g.foreign = g.foreign || def != ""
	}
	if g.one(2) {
		v.value = "wrong"
	}
	g.variables[slices.IndexFunc(g.variables, func(o variableText) bool { return o.name == v.name })] = v
	return v.name
}

var someInts = []string{"0", "1", "2", "3", "4", "5", "9", "-7", "2147483647", "-2147483648"}

func (g *generator) literal(t *ast.Type, depth int) string {
	if t.Elem != nil {
		if g.one(15) && depth < 3 {
			return g.literal(t.Elem, depth+1)
		}
		var items []string
		for range g.IntN(4) {
			items = append(items, g.input(t.Elem, false, depth+1, false))
		}
		return "[" + strings.Join(items, ", ") + "]"
	}
	def := g.s.types.Types[t.NamedType]
	switch def.Kind {
	case ast.Enum:
		return def.EnumValues[g.IntN(len(def.EnumValues))].Name
	case ast.InputObject:
		var fields []string
		for _, f := range def.Fields {
			if g.one(25) && (depth < 2 || g.s.types.Types[f.Type.Name()].Kind != ast.InputObject) {
				fields = append(fields, f.Name+": "+g.input(f.Type, f.DefaultValue != nil, depth+1, false))
			}
		}
		return "{" + strings.Join(fields, ", ") + "}"
	}
	switch def.Name {
	case "Int":
		return someInts[g.IntN(len(someInts))]
	case "Float":
		return []string{"1", "-2.5", "1e3", "0.125", "12345678901"}[g.IntN(5)]
	case "Boolean":
		return strconv.FormatBool(g.one(50))
	case "ID":
		return []string{`"i"`, "12"}[g.IntN(2)]
	}
	return []string{`""`, `"a\"\\\n\u00e9"`, `"é <&>"`, `"""plain"""`}[g.IntN(4)]
}

func (g *generator) json(t *ast.Type, depth int) any {
	if !t.NonNull && g.one(5) {
		g.foreign = true // graphql-go drops null within values
		return nil
	}
	if t.Elem != nil {
		if g.one(15) && depth < 3 {
			return g.json(t.Elem, depth+1)
		}
		items := []any{}
		for range g.IntN(4) {
			items = append(items, g.json(t.Elem, depth+1))
		}
		return items
	}
	def := g.s.types.Types[t.NamedType]
	switch def.Kind {
	case ast.Enum:
		return def.EnumValues[g.IntN(len(def.EnumValues))].Name
	case ast.InputObject:
		object := map[string]any{}
		for _, f := range def.Fields {
			if g.one(25) && (depth < 2 || g.s.types.Types[f.Type.Name()].Kind != ast.InputObject) {
				object[f.Name] = g.json(f.Type, depth+1)
			}
		}
		return object
	}
	switch def.Name {
	case "Int":
		return json.Number(someInts[g.IntN(len(someInts))])
	case "Float":
		return json.Number([]string{"1", "-2.5", "1e3", "0.125", "12345678901"}[g.IntN(5)])
	case "Boolean":
		return g.one(50)
	case "ID":
		return []any{"i", json.Number("12")}[g.IntN(2)]
	}
	return []string{"", "a\"\\\né", "<&>\u2028", "plain"}[g.IntN(4)]
}
