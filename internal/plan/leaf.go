package plan

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
)

// A Leaf is a value of a scalar that appends itself as JSON.
type Leaf interface {
	// AppendLeaf appends the value as JSON to dst. It cannot fail.
	AppendLeaf(dst []byte) []byte
}

// appendLeaf appends a value of a scalar or an enum as JSON. It returns an error if the type cannot represent the
// value.
func appendLeaf(dst []byte, s *outputType, v any) ([]byte, error) {
	if s.hostType != nil {
		return appendHostLeaf(dst, s.hostType, v)
	}
	if l, ok := v.(Leaf); ok && s.enum == nil {
		return l.AppendLeaf(dst), nil
	}
	v = unwrap(v)
	if s.enum != nil {
		name, ok := v.(string)
		if !ok || s.enum.EnumValues.ForName(name) == nil {
			return dst, errCannotRepresent("Enum "+s.enum.Name, v)
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
		if n, ok := unsigned(v); ok {
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
		if n, ok := unsigned(v); ok {
			return strconv.AppendUint(dst, n, 10), nil
		}
	}
	return dst, errCannotRepresent(s.leaf, v)
}

// errCannotRepresent returns the error for a value that a type cannot represent. The message contains the value
// only if the value is a string, a boolean or a number, because fmt does not terminate for a map that contains
// itself.
func errCannotRepresent(name string, v any) error {
	switch kind := reflect.ValueOf(v).Kind(); {
	case kind == reflect.String, kind >= reflect.Bool && kind <= reflect.Float64:
		return fmt.Errorf("%s cannot represent %T %s", name, v, shorten(fmt.Sprint(v)))
	}
	return fmt.Errorf("%s cannot represent a %T", name, v)
}

// unwrap dereferences pointers and converts values of named string, boolean and float types to string, bool and
// float64. Resolvers of hosts return pointers and values of such types.
func unwrap(v any) any {
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

// integer converts a value of any integer type to int64 and reports whether it fits.
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

// unsigned converts a value of any unsigned integer type to uint64. It is needed because shards and logical times
// can exceed an int64.
func unsigned(v any) (uint64, bool) {
	rv := reflect.ValueOf(v)
	if !rv.CanUint() {
		return 0, false
	}
	return rv.Uint(), true
}
