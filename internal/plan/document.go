package plan

import (
	"iter"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/vektah/gqlparser/v2/ast"
)

// A document has the text of a valid document and its compiled operations.
type document struct {
	text       string
	operations []*operation
	bytes      int // in memory

	// entries and found are the numbers of cache entries that have the document, and of those in lru.found. Cache.mu
	// guards them.
	entries, found int
}

// An operation is a compiled operation. It does not keep the document's text and syntax tree in memory, because
// these can be far larger.
type operation struct {
	id         string // unique in this process
	kind       ast.Operation
	hash       string // of the document, in hexadecimal
	name       string
	at         Location    // in the document
	variables  []variable  // the declared variables, followed by those of the parameters
	declared   int         // number of declared variables
	parameters []parameter // one for each placeholder of the document

	// conditions has the indexes of the variables that @skip and @include use. Their values decide which fields the
	// response has, and in which order. So if there are conditions, plan is nil, and Cache.planVariant returns the plan
	// for each combination of their values. plan is also nil if the document has several operations, because usually
	// only one of them runs.
	conditions []int
	plan       *Plan

	size int // in bytes, without the plan

	literalBytes int // length of the literals in the arguments of a subscription without parameters
}

type variable struct {
	name       string
	typ        *ast.Type
	scalar     string // the type's name if it is a built-in scalar, nullable or not; else ""
	def        any    // the default value
	hasDefault bool
	at         Location // in the document
}

// absent is the value of a variable that the request does not contain. It differs from nil, which stands for null.
type absent struct{}

// parse checks a text and returns its syntax tree. independent is false if two fields were required to have equal
// arguments. If it is true, the document stays valid if its literals are replaced with other literals of their types.
func (c *Cache) parse(text string) (tree *ast.QueryDocument, independent bool, errs Errors) {
	if c.limits.Document > 0 && len(text) > c.limits.Document {
		return nil, false, Errors{
			limitError("DocumentBytes", nil, "The document exceeds the limit of %d bytes.", c.limits.Document)}
	}
	if !utf8.ValidString(text) {
		return nil, false, Errors{syntaxError("The document is not UTF-8.", nil)}
	}
	doc, parts, err := parseDocument(text, c.limits)
	if err != nil {
		return nil, false, Errors{err}
	}
	if err := c.limits.check(doc); err != nil {
		return nil, false, Errors{err}
	}
	if errs := c.validate(doc, parts); errs != nil {
		return nil, false, errs
	}
	m := newMerger(c.schema)
	for _, op := range doc.Operations {
		if errs := m.merge(op, c.limits.Fields); errs != nil {
			return nil, false, errs
		}
	}
	return doc, !m.compared, nil
}

// compileOperations compiles the operation of a valid syntax tree, unless it has conditions. If there are several
// operations, they are compiled when they run. compileOperations may replace the literals at the placeholders with
// variables in the tree, but only if no operation must be compiled later.
func (c *Cache) compileOperations(
	text string, tree *ast.QueryDocument, placeholders []placeholder,
) (*document, Errors) {
	doc := &document{text: text}
	hash := Hash(text)
	for _, def := range tree.Operations {
		op := c.newOperation(def)
		op.hash = hash
		op.conditions = conditions(tree, def, op)
		op.size += 8 * len(op.conditions)
		if len(op.conditions) == 0 && len(tree.Operations) == 1 {
			op.parameters = c.replaceLiterals(tree, placeholders)
			for i, l := range op.parameters {
				op.variables = append(op.variables, variable{name: parameterName(i), typ: l.typ})
				op.size += variableBytes + parameterBytes + sizeOf(l.value, false)
			}
			op.variables = slices.Clone(op.variables) // without spare capacity
			var err *Error
			if op.plan, err = c.compile(tree, def, op, nil); err != nil {
				return nil, Errors{err}
			}
		}
		if def.Operation == ast.Subscription && op.parameters == nil {
			op.literalBytes = literalLength(tree, def)
		}
		doc.operations = append(doc.operations, op)
	}
	doc.bytes = doc.size()
	return doc, nil
}

// newOperation returns an operation with its declared variables, but without a plan.
func (c *Cache) newOperation(def *ast.OperationDefinition) *operation {
	op := &operation{id: strconv.FormatUint(identities.Add(1), 36), kind: def.Operation, name: strings.Clone(def.Name),
		at: location(def.Position), declared: len(def.VariableDefinitions)}
	op.variables = make([]variable, 0, op.declared)
	op.size = operationBytes + textBytes(len(op.name))
	for _, v := range def.VariableDefinitions {
		literal := cloneLiteral(v.DefaultValue)
		known := variable{name: strings.Clone(v.Variable), typ: c.schema.typeOf(v.Type), at: location(v.Position),
			def: c.schema.constant(v.Type, literal), hasDefault: literal != nil}
		name := known.typ.NamedType
		if name != "" && c.schema.types.Types[name].Kind == ast.Scalar && c.schema.hostScalar(name) == nil {
			known.scalar = name
		}
		op.variables = append(op.variables, known)
		op.size += variableBytes + textBytes(len(known.name)) + typeSize(known.typ)
		op.size += c.schema.constantSize(v.Type, literal, known.def)
	}
	return op
}

// selections yields the selections in operations and in all fragments of a document. It does not follow spreads, so
// it yields each selection once.
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

// operation returns the operation with this name. If name is "", it returns the only
// operation.
func (d *document) operation(name string) (*operation, *Error) {
	if name == "" {
		if len(d.operations) == 1 {
			return d.operations[0], nil
		}
		if len(d.operations) == 0 {
			return nil, inputError("Must provide an operation.")
		}
		return nil, inputError("Must provide operation name if query contains multiple operations.")
	}
	for _, op := range d.operations {
		if op.name == name {
			return op, nil
		}
	}
	return nil, inputError("Unknown operation named %q.", name)
}

// bind appends the coerced values of the declared variables to values.
func (op *operation) bind(c *Cache, values []any, valueOf lookup) ([]any, Errors) {
	var errs Errors
	remaining := c.limits.Tokens // number of values that the variables may still contain
	for i := range op.declared {
		v := &op.variables[i]
		value, present := valueOf(v.name)
		var err *Error
		switch {
		case present && (value != nil || !v.typ.NonNull):
			value, err = v.read(c, value, &remaining)
		case present:
			err = inputError("Variable \"$%s\" of non-null type %q must not be null.", v.name, v.typ)
		case v.hasDefault:
			// A resolver of the host may change it. It may be larger than its text: a host's fields have defaults, too.
			if err = c.limits.countValues(&remaining, 1+countValues(v.def)); err == nil {
				value = cloneValue(v.def)
			}
		case v.typ.NonNull:
			err = inputError("Variable \"$%s\" of required type %q was not provided.", v.name, v.typ)
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

// read coerces the value that the request has for v. A valid scalar needs no variableReader, which allocates a path
// for messages. All other values are subtracted from remaining, with the values nested in them.
func (v *variable) read(c *Cache, given any, remaining *int) (any, *Error) {
	if text, ok := given.(*Text); ok {
		if v.scalar == "String" {
			return text, nil
		}
		given = string(*text)
	}
	scalar := v.scalar != "" && given != nil
	if scalar {
		if value, ok := scalarJSON(v.scalar, given); ok {
			return value, nil
		}
	}
	r := variableReader{s: c.schema, limits: &c.limits, remaining: *remaining, variable: v.name,
		path: append(make([]byte, 0, 64), v.name...)}
	if scalar {
		return nil, r.invalidScalar(v.scalar, given)
	}
	value, err := r.read(v.typ, given)
	*remaining = r.remaining
	return value, err
}
