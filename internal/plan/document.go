package plan

import (
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"
	"github.com/vektah/gqlparser/v2/parser"
	"github.com/vektah/gqlparser/v2/validator/core"
)

// A document is what is kept of a good text: its operations, compiled.
type document struct {
	text       string
	operations []*operation
}

// An operation is ready to be given variables. It keeps nothing of the document's
// text and syntax tree, which can be far larger than what runs.
type operation struct {
	id        string // of this operation alone, in this process
	kind      ast.Operation
	hash      string // of the document, in hex
	name      string
	at        Location
	variables []variable
	declared  int      // of the variables; those behind are of the holes
	lifted    []lifted // what is to fill the holes
	// conditions are the variables that @skip and @include ask for. They
	// decide which fields there are and in which order, so there is a plan for
	// each of their values; plan is nil then.
	conditions []int
	plan       *Plan
	size       int // in bytes, without the plan's
}

type variable struct {
	name       string
	typ        *ast.Type
	scalar     string // the type's name, where it is a scalar or non-null one
	def        any
	hasDefault bool
	at         Location
}

// absent marks a variable that was not given, where null was given to others.
type absent struct{}

// parse turns a text into a checked tree. one tells that no two fields had to
// have the same arguments: then nothing that was checked asks for more of a
// literal than its type.
func (c *Cache) parse(text string) (tree *ast.QueryDocument, one bool, errs Errors) {
	if c.limits.Document > 0 && len(text) > c.limits.Document {
		return nil, false, Errors{limitError("DocumentBytes", nil, "The document exceeds the limit of %d bytes.", c.limits.Document)}
	}
	if !utf8.ValidString(text) {
		return nil, false, Errors{{Message: "Syntax Error: The document is not UTF-8.", Code: CodeParse}}
	}
	text, hidden := disguised(text)
	lex := lexical{text: text, limits: c.limits, hidden: hidden}
	if err := lex.read(); err != nil {
		return nil, false, Errors{err}
	}
	doc, err := parser.ParseQuery(&ast.Source{Input: text})
	if err != nil {
		return nil, false, Errors{lex.syntaxError(err)}
	}
	if err := grammar(doc); err != nil {
		return nil, false, Errors{err}
	}
	if err := c.limits.check(doc, lex.blocks, hidden); err != nil {
		return nil, false, Errors{err}
	}
	if errs := c.validate(doc); errs != nil {
		return nil, false, errs
	}
	one = true
	for _, op := range doc.Operations {
		compared, errs := c.schema.merge(op, c.limits.Fields)
		if one = one && !compared; errs != nil {
			return nil, false, errs
		}
	}
	return doc, one, nil
}

func locations(err *gqlerror.Error) []Location {
	var ls []Location
	for _, l := range err.Locations {
		ls = append(ls, Location{l.Line, l.Column})
	}
	return ls
}

// validate keeps the first few of what the rules find, each once: they meet a
// fragment as often as it is reached.
func (c *Cache) validate(doc *ast.QueryDocument) Errors {
	var errs Errors
	add := func(options ...core.ErrorOption) {
		if len(errs) == maxErrors {
			return
		}
		var found gqlerror.Error
		for _, option := range options {
			option(&found)
		}
		e := &Error{Message: found.Message, Code: CodeValidation, Locations: locations(&found)}
		if !slices.ContainsFunc(errs, func(o *Error) bool { return o.Message == e.Message && slices.Equal(o.Locations, e.Locations) }) {
			errs = append(errs, e)
		}
	}
	events := &core.Events{}
	for _, rule := range c.rules {
		rule.RuleFunc(events, add)
	}
	core.Walk(c.schema.types, doc, events)
	return errs
}

// prepare makes the operations of a checked tree, with their plans where those
// do not wait for variables. holes are where literals may be lifted out; the
// tree is not what it was then.
func (c *Cache) prepare(text string, tree *ast.QueryDocument, holes []hole) (*document, Errors) {
	doc := &document{text: text}
	hash := Hash(text)
	for _, def := range tree.Operations {
		op := c.declare(def)
		op.hash = hash
		op.conditions = conditions(tree, def, op)
		op.size += 8 * len(op.conditions)
		if len(op.conditions) == 0 {
			op.lifted = c.lift(tree, holes)
			for i, l := range op.lifted {
				op.variables = append(op.variables, variable{name: holeName(i), typ: l.typ})
				op.size += variableBytes + liftedBytes + weigh(l.value, false)
			}
			op.variables = slices.Clone(op.variables) // without the room for more
			var err *Error
			if op.plan, err = c.compile(tree, def, op, nil); err != nil {
				return nil, Errors{err}
			}
		}
		doc.operations = append(doc.operations, op)
	}
	return doc, nil
}

// declare makes an operation with its variables.
func (c *Cache) declare(def *ast.OperationDefinition) *operation {
	op := &operation{id: strconv.FormatUint(identities.Add(1), 36), kind: def.Operation, name: strings.Clone(def.Name),
		at: place(def.Position), declared: len(def.VariableDefinitions)}
	op.variables = make([]variable, 0, op.declared)
	op.size = operationBytes + textBytes(len(op.name))
	for _, v := range def.VariableDefinitions {
		literal := detached(v.DefaultValue)
		known := variable{name: strings.Clone(v.Variable), typ: c.schema.typeOf(v.Type), at: place(v.Position),
			def: c.schema.constant(v.Type, literal), hasDefault: literal != nil}
		name := known.typ.NamedType
		if name != "" && c.schema.types.Types[name].Kind == ast.Scalar && c.schema.own(name) == nil {
			known.scalar = name
		}
		op.variables = append(op.variables, known)
		op.size += variableBytes + textBytes(len(known.name)) + weighType(known.typ)
		op.size += c.schema.weighConstant(v.Type, literal, known.def)
	}
	return op
}

// conditions lists the variables that @skip and @include use anywhere in the
// document. A few too many do no harm: they are sorted out by being equal.
func conditions(tree *ast.QueryDocument, def *ast.OperationDefinition, op *operation) []int {
	var used []int
	for sel := range selections(tree, def) {
		var directives ast.DirectiveList
		switch sel := sel.(type) {
		case *ast.Field:
			directives = sel.Directives
		case *ast.InlineFragment:
			directives = sel.Directives
		case *ast.FragmentSpread:
			directives = sel.Directives
		}
		for _, d := range directives {
			v := d.Arguments.ForName("if")
			if v == nil || v.Value.Kind != ast.Variable {
				continue
			}
			i := op.variable(v.Value.Raw)
			if i >= 0 && !slices.Contains(used, i) {
				used = append(used, i)
			}
		}
	}
	slices.Sort(used)
	return used
}

// selections yields the selections of some operations and of all fragments. It does
// not follow spreads: each selection comes once.
func selections(tree *ast.QueryDocument, operations ...*ast.OperationDefinition) iter.Seq[ast.Selection] {
	return func(yield func(ast.Selection) bool) {
		var walk func(ast.SelectionSet) bool
		walk = func(set ast.SelectionSet) bool {
			for _, sel := range set {
				if !yield(sel) {
					return false
				}
				var nested ast.SelectionSet
				switch sel := sel.(type) {
				case *ast.Field:
					nested = sel.SelectionSet
				case *ast.InlineFragment:
					nested = sel.SelectionSet
				}
				if !walk(nested) {
					return false
				}
			}
			return true
		}
		for _, op := range operations {
			if !walk(op.SelectionSet) {
				return
			}
		}
		for _, f := range tree.Fragments {
			if !walk(f.SelectionSet) {
				return
			}
		}
	}
}

func (op *operation) variable(name string) int {
	return slices.IndexFunc(op.variables, func(v variable) bool { return v.name == name })
}

// operation picks the operation to run; "" is the only one.
func (d *document) operation(name string) (*operation, *Error) {
	if name == "" {
		if len(d.operations) == 1 {
			return d.operations[0], nil
		}
		if len(d.operations) == 0 {
			return nil, &Error{Message: "Must provide an operation.", Code: CodeInput}
		}
		return nil, &Error{Message: "Must provide operation name if query contains multiple operations.", Code: CodeInput}
	}
	for _, op := range d.operations {
		if op.name == name {
			return op, nil
		}
	}
	return nil, &Error{Message: fmt.Sprintf("Unknown operation named %q.", name), Code: CodeInput}
}

// bind appends the operation's variables, coerced.
func (op *operation) bind(c *Cache, values []any, given lookup) ([]any, Errors) {
	var errs Errors
	for i := range op.declared {
		v := &op.variables[i]
		value, present := given(v.name)
		var err *Error
		switch {
		case present && (value != nil || !v.typ.NonNull):
			value, err = v.read(c, value)
		case present:
			err = &Error{Message: fmt.Sprintf("Variable \"$%s\" of non-null type %q must not be null.", v.name, v.typ), Code: CodeInput}
		case v.hasDefault:
			value = v.def
		case v.typ.NonNull:
			err = &Error{Message: fmt.Sprintf("Variable \"$%s\" of required type %q was not provided.", v.name, v.typ), Code: CodeInput}
		default:
			value = absent{}
		}
		values = append(values, value)
		if err != nil && len(errs) < maxErrors {
			err.Locations = []Location{v.at}
			errs = append(errs, err)
		}
	}
	return values, errs
}

// read coerces a variable's value. A scalar that is as it should be needs no
// reader, which keeps its way for messages.
func (v *variable) read(c *Cache, given any) (any, *Error) {
	if v.scalar != "" && given != nil {
		if value, ok := scalarJSON(v.scalar, given); ok {
			return value, nil
		}
	}
	r := reader{s: c.schema, maxItems: c.limits.ListItems, variable: v.name, path: append(make([]byte, 0, 64), v.name...)}
	return r.read(v.typ, given)
}
