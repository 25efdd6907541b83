package plan

import (
	"fmt"

	"github.com/vektah/gqlparser/v2/ast"
)

// maxNesting is the maximum number of nested selection sets, lists, objects and list types, with which functions may
// recurse over a document.
const maxNesting = 1000

// A parser reads executable documents by the grammar of the specification of September 2025 and returns gqlparser's
// syntax tree. Its errors are those of graphql-js 17, and positions in the tree are those at which graphql-js reports
// errors. gqlparser's own parser accepts other documents, and its positions and errors differ.
type parser struct {
	lexer
	token   token // the token that is read next
	limits  Limits
	count   int // number of tokens that have been read
	nesting int
	parts   parts
	src     *ast.Source // gqlparser's rules require one
}

// parts has the positions of those parts of nodes for which gqlparser's tree has no position.
type parts map[part]*ast.Position

// A part is a part of an operation, fragment, spread, inline fragment or field.
type part struct {
	node any // a pointer to the node
	kind partKind
}

type partKind uint8

const (
	partName partKind = iota
	partTypeCondition
	partSelectionSet
)

// parseDocument parses a text within the limits on tokens.
func parseDocument(text string, limits Limits) (doc *ast.QueryDocument, parts parts, err *Error) {
	p := newParser(text, limits)
	defer recoverSyntaxError(&err)
	p.advance()
	doc = &ast.QueryDocument{}
	for {
		p.definition(doc)
		if p.token.kind == tokenEOF {
			return doc, p.parts, nil
		}
	}
}

// parseConstant parses a value without variables.
func parseConstant(text string) (v *ast.Value, err *Error) {
	p := newParser(text, Limits{}.withDefaults())
	defer recoverSyntaxError(&err)
	p.advance()
	v = p.value(true)
	p.expect(tokenEOF)
	return v, nil
}

func newParser(text string, limits Limits) *parser {
	return &parser{lexer: lexer{text: text}, limits: limits, parts: parts{}, src: &ast.Source{}}
}

// recoverSyntaxError stores the *Error with which the lexer or the parser panicked. It must be deferred.
func recoverSyntaxError(err **Error) {
	switch p := recover().(type) {
	case nil:
	case *Error:
		*err = p
	default:
		panic(p)
	}
}

// advance reads the next token.
func (p *parser) advance() {
	if p.token = p.next(); !p.is(tokenEOF) {
		p.count++
	}
	if p.limits.Tokens > 0 && p.count+p.comments > p.limits.Tokens {
		panic(limitError("Tokens", p.position(), "The document exceeds the limit of %d tokens.", p.limits.Tokens))
	}
}

// position returns the position of the current token.
func (p *parser) position() *ast.Position {
	t := &p.token
	return &ast.Position{Start: t.start, End: t.end, Line: t.at.Line, Column: t.at.Column, Src: p.src}
}

func (p *parser) is(kind tokenKind) bool { return p.token.kind == kind }

func (p *parser) isKeyword(word string) bool { return p.is(tokenName) && p.token.value == word }

// accept reads the current token if it is of a kind, and reports whether it is.
func (p *parser) accept(kind tokenKind) bool {
	if !p.is(kind) {
		return false
	}
	p.advance()
	return true
}

func (p *parser) expect(kind tokenKind) string {
	if !p.is(kind) {
		p.fail(p.token, "Expected %s, found %s.", kind, p.token)
	}
	value := p.token.value
	p.advance()
	return value
}

func (p *parser) expectKeyword(word string) {
	if !p.isKeyword(word) {
		p.fail(p.token, "Expected %q, found %s.", word, p.token)
	}
	p.advance()
}

func (p *parser) unexpected() { p.fail(p.token, "Unexpected %s.", p.token) }

// fail panics with a syntax error at a token.
func (p *parser) fail(t token, format string, args ...any) {
	panic(syntaxError(fmt.Sprintf(format, args...), []Location{t.at}))
}

// nest counts a level of nesting, until leave is called.
func (p *parser) nest() {
	if p.nesting++; p.nesting > maxNesting {
		panic(depthError(p.position(), p.limits.Depth))
	}
}

func (p *parser) leave() { p.nesting-- }

// list reads items between two tokens. There must be at least one item.
func (p *parser) list(open, end tokenKind, item func()) {
	p.expect(open)
	for first := true; first || !p.accept(end); first = false {
		item()
	}
}

func (p *parser) definition(doc *ast.QueryDocument) {
	start := p.position()
	if p.is("{") {
		op := &ast.OperationDefinition{Operation: ast.Query, Position: start}
		op.SelectionSet = p.selectionSet(op)
		doc.Operations = append(doc.Operations, op)
		return
	}
	first := p.token
	description, described := p.description()
	if p.is("{") {
		p.fail(first, "Unexpected description, descriptions are not supported on shorthand queries.")
	}
	for _, kind := range [...]ast.Operation{ast.Query, ast.Mutation, ast.Subscription} {
		if p.isKeyword(string(kind)) {
			doc.Operations = append(doc.Operations, p.operation(start, description, kind))
			return
		}
	}
	switch {
	case p.isKeyword("fragment"):
		doc.Fragments = append(doc.Fragments, p.fragment(start, description))
	case described && p.is(tokenName):
		p.fail(first, "Unexpected description, only GraphQL definitions support descriptions.")
	default:
		p.unexpected()
	}
}

func (p *parser) description() (text string, present bool) {
	if !p.is(tokenString) && !p.is(tokenBlock) {
		return "", false
	}
	text = p.token.value
	p.advance()
	return text, true
}

func (p *parser) operation(start *ast.Position, description string, kind ast.Operation) *ast.OperationDefinition {
	op := &ast.OperationDefinition{Operation: kind, Description: description, Position: start}
	if p.advance(); p.is(tokenName) {
		p.parts[part{op, partName}] = p.position()
		op.Name = p.expect(tokenName)
	}
	if p.is("(") {
		p.list("(", ")", func() { op.VariableDefinitions = append(op.VariableDefinitions, p.variableDefinition()) })
	}
	op.Directives = p.directives(false)
	op.SelectionSet = p.selectionSet(op)
	return op
}

func (p *parser) variableDefinition() *ast.VariableDefinition {
	v := &ast.VariableDefinition{Position: p.position()}
	v.Description, _ = p.description()
	p.expect("$")
	p.parts[part{v, partName}] = p.position()
	v.Variable = p.expect(tokenName)
	p.expect(":")
	v.Type = p.typeReference()
	if p.accept("=") {
		v.DefaultValue = p.value(true)
	}
	v.Directives = p.directives(true)
	return v
}

func (p *parser) fragment(start *ast.Position, description string) *ast.FragmentDefinition {
	f := &ast.FragmentDefinition{Description: description, Position: start}
	p.expectKeyword("fragment")
	if p.token.value == "on" {
		p.unexpected()
	}
	p.parts[part{f, partName}] = p.position()
	f.Name = p.expect(tokenName)
	p.expectKeyword("on")
	p.parts[part{f, partTypeCondition}] = p.position()
	f.TypeCondition = p.expect(tokenName)
	f.Directives = p.directives(false)
	f.SelectionSet = p.selectionSet(f)
	return f
}

// selectionSet reads the selection set of a node.
func (p *parser) selectionSet(of any) (set ast.SelectionSet) {
	p.nest()
	defer p.leave()
	p.parts[part{of, partSelectionSet}] = p.position()
	p.list("{", "}", func() { set = append(set, p.selection()) })
	return set
}

func (p *parser) selection() ast.Selection {
	start := p.position()
	if !p.accept("...") {
		return p.field(start)
	}
	if p.is(tokenName) && p.token.value != "on" {
		s := &ast.FragmentSpread{Position: start}
		p.parts[part{s, partName}] = p.position()
		s.Name = p.expect(tokenName)
		s.Directives = p.directives(false)
		return s
	}
	f := &ast.InlineFragment{Position: start}
	if p.accept(tokenName) {
		p.parts[part{f, partTypeCondition}] = p.position()
		f.TypeCondition = p.expect(tokenName)
	}
	f.Directives = p.directives(false)
	f.SelectionSet = p.selectionSet(f)
	return f
}

func (p *parser) field(start *ast.Position) *ast.Field {
	f := &ast.Field{Position: start, Alias: p.expect(tokenName)}
	f.Name = f.Alias
	if p.accept(":") {
		f.Name = p.expect(tokenName)
	}
	f.Arguments = p.arguments(false)
	f.Directives = p.directives(false)
	if p.is("{") {
		f.SelectionSet = p.selectionSet(f)
	}
	return f
}

func (p *parser) arguments(constant bool) (args ast.ArgumentList) {
	if !p.is("(") {
		return nil
	}
	p.list("(", ")", func() {
		a := &ast.Argument{Position: p.position(), Name: p.expect(tokenName)}
		p.expect(":")
		a.Value = p.value(constant)
		args = append(args, a)
	})
	return args
}

func (p *parser) directives(constant bool) (list ast.DirectiveList) {
	for p.is("@") {
		d := &ast.Directive{Position: p.position()}
		p.advance()
		d.Name = p.expect(tokenName)
		d.Arguments = p.arguments(constant)
		list = append(list, d)
	}
	return list
}

func (p *parser) typeReference() *ast.Type {
	t := &ast.Type{Position: p.position()}
	if p.accept("[") {
		p.nest()
		defer p.leave()
		t.Elem = p.typeReference()
		p.expect("]")
	} else {
		t.NamedType = p.expect(tokenName)
	}
	t.NonNull = p.accept("!")
	return t
}
