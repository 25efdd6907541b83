package plan

import "github.com/vektah/gqlparser/v2/ast"

// value reads a value. A constant contains no variables.
func (p *parser) value(constant bool) *ast.Value {
	v := &ast.Value{Position: p.position(), Raw: p.token.value}
	switch p.token.kind {
	case "[":
		return p.listValue(v, constant)
	case "{":
		return p.objectValue(v, constant)
	case "$":
		return p.variable(v, constant)
	case tokenInt:
		v.Kind = ast.IntValue
	case tokenFloat:
		v.Kind = ast.FloatValue
	case tokenString:
		v.Kind = ast.StringValue
	case tokenBlock:
		v.Kind = ast.BlockValue
	case tokenName:
		switch v.Raw {
		case "true", "false":
			v.Kind = ast.BooleanValue
		case "null":
			v.Kind = ast.NullValue
		default:
			v.Kind = ast.EnumValue
		}
	default:
		p.unexpected()
	}
	p.advance()
	return v
}

func (p *parser) variable(v *ast.Value, constant bool) *ast.Value {
	dollar := p.token
	p.advance()
	if constant && p.is(tokenName) {
		p.fail(dollar, `Unexpected variable "$%s" in constant value.`, p.token.value)
	} else if constant {
		p.fail(dollar, "Unexpected %s.", dollar)
	}
	v.Kind, v.Raw = ast.Variable, p.expect(tokenName)
	return v
}

func (p *parser) listValue(v *ast.Value, constant bool) *ast.Value {
	p.nest()
	defer p.leave()
	v.Kind, v.Raw = ast.ListValue, ""
	for p.advance(); !p.accept("]"); {
		v.Children = append(v.Children, &ast.ChildValue{Value: p.value(constant)})
	}
	return v
}

func (p *parser) objectValue(v *ast.Value, constant bool) *ast.Value {
	p.nest()
	defer p.leave()
	v.Kind, v.Raw = ast.ObjectValue, ""
	for p.advance(); !p.accept("}"); {
		f := &ast.ChildValue{Position: p.position(), Name: p.expect(tokenName)}
		p.expect(":")
		f.Value = p.value(constant)
		v.Children = append(v.Children, f)
	}
	return v
}
