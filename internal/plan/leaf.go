package plan

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
)

// A Leaf is a scalar's value that writes itself, as JSON of the scalar's type.
// It cannot fail.
type Leaf interface {
	AppendLeaf(dst []byte) []byte
}

// appendLeaf appends a scalar's or an enum's value as JSON. What a type cannot
// hold is an error, never a wrong value.
func appendLeaf(dst []byte, s *shape, v any) ([]byte, error) {
	if s.own != nil {
		return appendOwn(dst, s.own, v)
	}
	if l, ok := v.(Leaf); ok && s.enum == nil {
		return l.AppendLeaf(dst), nil
	}
	v = bare(v)
	if s.enum != nil {
		name, ok := v.(string)
		if !ok || s.enum.EnumValues.ForName(name) == nil {
			return dst, misfit("Enum "+s.enum.Name, v)
		}
		return AppendString(dst, name), nil
	}
	switch s.leaf {
	case "String", "ID":
		if text, ok := v.(string); ok {
			return AppendString(dst, text), nil
		}
		if n, ok := integer(v); ok {
			dst = append(dst, '"')
			dst = strconv.AppendInt(dst, n, 10)
			return append(dst, '"'), nil
		}
		if n, ok := large(v); ok {
			dst = append(dst, '"')
			dst = strconv.AppendUint(dst, n, 10)
			return append(dst, '"'), nil
		}
	case "Boolean":
		if b, ok := v.(bool); ok {
			return strconv.AppendBool(dst, b), nil
		}
	case "Int":
		n, ok := integer(v)
		if f, isFloat := v.(float64); isFloat && f == math.Trunc(f) && math.Abs(f) <= math.MaxInt32+1 {
			n, ok = int64(f), true
		}
		if ok && n >= math.MinInt32 && n <= math.MaxInt32 {
			return strconv.AppendInt(dst, n, 10), nil
		}
	case "Float":
		if f, ok := v.(float64); ok {
			return appendFloat(dst, f)
		}
		if n, ok := integer(v); ok {
			return strconv.AppendInt(dst, n, 10), nil
		}
		if n, ok := large(v); ok {
			return strconv.AppendUint(dst, n, 10), nil
		}
	}
	return dst, misfit(s.leaf, v)
}

// misfit says that a type cannot hold a value, and the value where it is one
// word: fmt would follow a map that leads back to itself until the process dies.
func misfit(name string, v any) error {
	switch kind := reflect.ValueOf(v).Kind(); {
	case kind == reflect.String, kind >= reflect.Bool && kind <= reflect.Float64:
		return fmt.Errorf("%s cannot represent %T %s", name, v, shorten(fmt.Sprint(v)))
	}
	return fmt.Errorf("%s cannot represent a %T", name, v)
}

// bare is the value of a string, boolean or float behind a pointer or a name of
// its own, as the resolvers of hosts give them.
func bare(v any) any {
	switch v.(type) {
	case string, bool, int, float64:
		return v
	}
	rv := reflect.ValueOf(v)
	for rv.Kind() == reflect.Pointer && !rv.IsNil() {
		rv = rv.Elem()
	}
	switch rv.Kind() {
	case reflect.String:
		return rv.String()
	case reflect.Bool:
		return rv.Bool()
	case reflect.Float32, reflect.Float64:
		return rv.Float()
	case reflect.Pointer, reflect.Invalid:
		return v
	}
	return rv.Interface()
}

func integer(v any) (int64, bool) {
	if n, ok := v.(int); ok {
		return int64(n), true
	}
	rv := reflect.ValueOf(v)
	switch {
	case rv.CanInt():
		return rv.Int(), true
	case rv.CanUint() && rv.Uint() <= math.MaxInt64:
		return int64(rv.Uint()), true
	}
	return 0, false
}

// large is a number that integer has no room for, as shards and logical times are.
func large(v any) (uint64, bool) {
	rv := reflect.ValueOf(v)
	if !rv.CanUint() {
		return 0, false
	}
	return rv.Uint(), true
}
