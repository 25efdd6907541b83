package plan

import (
	"encoding/json"
	"math"
	"strconv"

	"github.com/vektah/gqlparser/v2/ast"
)

// json coerces the value of a variable to the type t, as the specification defines it.
func (r *reference) json(t *ast.Type, v any) (any, error) {
	if v == nil {
		if t.NonNull {
			return nil, errInvalid
		}
		return nil, nil
	}
	if t.Elem != nil {
		given, ok := v.([]any)
		if !ok {
			given = []any{v}
		}
		list := []any{}
		for _, item := range given {
			read, err := r.json(t.Elem, item)
			if err != nil {
				return nil, err
			}
			list = append(list, read)
		}
		return list, nil
	}
	def := r.s.types.Types[t.NamedType]
	if def.Kind == ast.InputObject {
		given, ok := v.(map[string]any)
		if !ok {
			return nil, errInvalid
		}
		object := map[string]any{}
		for name := range given {
			if def.Fields.ForName(name) == nil {
				return nil, errInvalid
			}
		}
		for _, f := range def.Fields {
			value, present := given[f.Name]
			var err error
			switch {
			case present:
				object[f.Name], err = r.json(f.Type, value)
			case f.DefaultValue != nil:
				object[f.Name], err = r.literal(f.Type, f.DefaultValue)
			case f.Type.NonNull:
				err = errInvalid
			}
			if err != nil {
				return nil, err
			}
		}
		return object, nil
	}
	if n, ok := v.(json.Number); ok {
		f, err := n.Float64()
		switch whole := err == nil && f == math.Trunc(f) && math.Abs(f) < 1<<53; {
		case def.Name == "Int" && whole && f >= math.MinInt32 && f <= math.MaxInt32:
			return int(f), nil
		case def.Name == "Float" && err == nil:
			return f, nil
		case def.Name == "ID" && whole:
			return strconv.FormatInt(int64(f), 10), nil
		}
		return nil, errInvalid
	}
	switch v := v.(type) {
	case string:
		if def.Name == "String" || def.Name == "ID" || def.EnumValues.ForName(v) != nil {
			return v, nil
		}
	case bool:
		if def.Name == "Boolean" {
			return v, nil
		}
	}
	return nil, errInvalid
}

// literal coerces a literal to the type t, as the specification defines it.
func (r *reference) literal(t *ast.Type, v *ast.Value) (any, error) {
	if v.Kind == ast.Variable {
		value := r.vars[v.Raw]
		if value == nil && t.NonNull {
			return nil, errInvalid
		}
		return value, nil
	}
	if v.Kind == ast.NullValue {
		if t.NonNull {
			return nil, errInvalid
		}
		return nil, nil
	}
	if t.Elem != nil {
		list := []any{}
		children := v.Children
		if v.Kind != ast.ListValue {
			children = ast.ChildValueList{{Value: v}}
		}
		for _, child := range children {
			item, err := r.literal(t.Elem, child.Value)
			if err != nil {
				return nil, err
			}
			list = append(list, item)
		}
		return list, nil
	}
	def := r.s.types.Types[t.NamedType]
	if def.Kind == ast.InputObject {
		object := map[string]any{}
		for _, f := range def.Fields {
			child := v.Children.ForName(f.Name)
			if child != nil && child.Kind == ast.Variable {
				if _, present := r.vars[child.Raw]; !present {
					child = nil
				}
			}
			if child == nil {
				child = f.DefaultValue
			}
			if child == nil {
				continue
			}
			value, err := r.literal(f.Type, child)
			if err != nil {
				return nil, err
			}
			object[f.Name] = value
		}
		return object, nil
	}
	switch def.Name {
	case "Int":
		return strconv.Atoi(v.Raw)
	case "Float":
		return strconv.ParseFloat(v.Raw, 64)
	case "Boolean":
		return v.Raw == "true", nil
	}
	return v.Raw, nil
}
