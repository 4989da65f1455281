package expr

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

var (
	errTooLarge = fmt.Errorf("the result is larger than %d MiB", maxResult>>20)
	errTooDeep  = fmt.Errorf("the result is nested deeper than %d levels", maxDepth)
)

// jsonLike converts what CEL gives to a JSON-like value.
func jsonLike(v ref.Val) (any, error) {
	c := converter{bytes: maxResult, elements: maxElements}
	return c.convert(v, 0)
}

// converter counts what is left of the limits.
type converter struct{ bytes, elements int }

func (c *converter) convert(v ref.Val, depth int) (any, error) {
	if depth > maxDepth {
		return nil, errTooDeep
	}
	if c.elements--; c.elements < 0 {
		return nil, errTooLarge
	}
	switch x := v.(type) {
	case types.Null:
		return nil, nil
	case types.Bool:
		return bool(x), nil
	case types.Int:
		return float64(x), nil
	case types.Uint:
		return float64(x), nil
	case types.Double:
		if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) {
			return nil, fmt.Errorf("the result is %v, which JSON has no number for", float64(x))
		}
		return float64(x), nil
	case types.String:
		return c.text(string(x))
	case types.Bytes:
		return c.text(base64.StdEncoding.EncodeToString(x))
	case types.Timestamp:
		return x.UTC().Format(time.RFC3339Nano), nil
	case types.Duration:
		return seconds(x.Duration), nil
	case *types.Optional:
		if !x.HasValue() {
			return nil, nil
		}
		return c.convert(x.GetValue(), depth)
	case traits.Mapper:
		return c.object(x, depth)
	case traits.Lister:
		return c.list(x, depth)
	}
	return nil, fmt.Errorf("the result is %s, which is not a value", valueName(v))
}

func (c *converter) text(s string) (any, error) {
	if c.bytes -= len(s); c.bytes < 0 {
		return nil, errTooLarge
	}
	return s, nil
}

func (c *converter) list(l traits.Lister, depth int) (any, error) {
	list := []any{}
	for it := l.Iterator(); it.HasNext() == types.True; {
		value, err := c.convert(it.Next(), depth+1)
		if err != nil {
			return nil, err
		}
		list = append(list, value)
	}
	return list, nil
}

func (c *converter) object(m traits.Mapper, depth int) (any, error) {
	object := map[string]any{}
	for it := m.Iterator(); it.HasNext() == types.True; {
		key := it.Next()
		name, err := asText(key)
		if err != nil {
			return nil, err
		}
		if c.bytes -= len(name); c.bytes < 0 {
			return nil, errTooLarge
		}
		if object[name], err = c.convert(m.Get(key), depth+1); err != nil {
			return nil, err
		}
	}
	return object, nil
}

// asText is how a value appears inside a text: strings as they are, the rest as JSON writes it. Integers keep all digits.
func asText(v ref.Val) (string, error) {
	switch x := v.(type) {
	case types.String:
		return string(x), nil
	case types.Int:
		return strconv.FormatInt(int64(x), 10), nil
	case types.Uint:
		return strconv.FormatUint(uint64(x), 10), nil
	}
	value, err := jsonLike(v)
	if err != nil {
		return "", err
	}
	if s, ok := value.(string); ok {
		return s, nil
	}
	text, err := json.Marshal(value)
	if err != nil {
		return "", errors.New("the result cannot be written as text")
	}
	if len(text) > maxResult {
		return "", errTooLarge
	}
	return string(text), nil
}

// seconds writes a duration as protobuf's JSON does, such as "1.5s".
func seconds(d time.Duration) string {
	return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + "s"
}
